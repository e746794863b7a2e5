"""New and edited definitions: checked as they are typed, kept by the same functions as over `/v1`."""

from typing import Any, Final

from toolkeep.definitions.vocabulary import Isolation, Tier
from toolkeep.errors import DefinitionError, LicenseRequired, ToolkeepError
from toolkeep.keep import Keep
from toolkeep.registry.tiers import ALLOWANCES
from toolkeep.server import definitions, tools
from toolkeep.server.answers import Answer
from toolkeep.server.page import drafts
from toolkeep.server.page.drafts import Draft, ParameterDraft, Read, draft_of, read_draft, slot_of
from toolkeep.server.page.request import PageRequest, page_route
from toolkeep.server.page.tools import custom_lock, may_create
from toolkeep.server.problems import nothing_there
from toolkeep.server.routes.common import NAME
from toolkeep.server.service import Service
from toolkeep.tokens import Scope

_SLOTS: Final = (
    "name", "description", "version", "category", "danger", "parameters", "output_schema", "timeout_s",
    "output_kb", "isolation", "side_effects", "capabilities", "more",
)  # fmt: skip
_FIRST: Final = Draft(parameters=(ParameterDraft(mark="k0"),))


async def _new(service: Service, request: PageRequest) -> Answer:
    if may_create(service.keep, request.caller) == "closed":
        raise nothing_there("page")
    return _form(service, request, _FIRST, is_new=True)


async def _edit(service: Service, request: PageRequest) -> Answer:
    view = tools.show_tool(service.keep, request.caller, request.names["name"])
    tool = tools.find_tool(service.keep, request.caller, request.names["name"])
    if tool.provider != "store":
        raise nothing_there("stored definition")
    stored = service.keep.definition_versions(tool.name)[0]
    data = stored.definition.to_dict()
    if stored.run is not None:
        data["run"] = stored.run
    return _form(service, request, draft_of(data), is_new=False, tag=view.tag)


def _form(service: Service, request: PageRequest, draft: Draft, **more: Any) -> Answer:
    return request.renderer.page(
        request,
        "definition.html",
        draft=draft,
        lock=custom_lock(service.keep),
        isolations=_isolations(service.keep),
        categories=drafts.CATEGORIES,
        dangers=drafts.DANGERS,
        types=drafts.TYPES,
        effects=drafts.EFFECTS,
        errors={},
        **{"tag": "", **more},
    )


def _isolations(keep: Keep) -> list[tuple[str, str]]:
    """Each level with the tier that it needs, where this keep's own does not include it."""
    return [(level, _needed(keep, Isolation(level))) for level in drafts.ISOLATIONS]


def _needed(keep: Keep, level: Isolation) -> str:
    if level.rank <= ALLOWANCES[keep.tier].isolation.rank:
        return ""
    return next(tier.value for tier in Tier if ALLOWANCES[tier].isolation.rank >= level.rank)


async def _check(service: Service, request: PageRequest) -> Answer:
    """What is wrong with what was typed so far, each at its field."""
    form = await request.form()
    read = read_draft(form)
    errors = await _problems(service, request, read, is_new=not form.get("tag"))
    return request.renderer.page(request, "parts/definition_checked.html", **_slots(read, errors))


async def _problems(
    service: Service, request: PageRequest, read: Read, *, is_new: bool
) -> dict[str, list[str]]:
    errors = {slot: list(messages) for slot, messages in read.errors.items()}
    report = await definitions.check_definition(service.keep, request.caller, read.data)
    for problem in report.problems:
        is_taken = problem["field"] == "name" and not is_new and problem["code"] == "ACODE-TSR-007"
        if not is_taken:
            _add(errors, slot_of(problem["field"], read.draft), problem)
    return errors


def _add(errors: dict[str, list[str]], slot: str, problem: dict[str, str]) -> None:
    mend = problem.get("mend", "")
    where = problem["field"] if slot in ("more", "parameters") else ""
    said = f"{where} {problem['message']}".strip() + (f": {mend}" if mend else "")
    if said not in errors.setdefault(slot, []):
        errors[slot].append(said)


def _slots(read: Read, errors: dict[str, list[str]]) -> dict[str, Any]:
    parameters = [f"p-{one.mark}" for one in read.draft.parameters]
    return {"slots": [*_SLOTS, *parameters], "errors": errors, "draft": read.draft}


async def _save(service: Service, request: PageRequest) -> Answer:
    form = await request.form()
    read = read_draft(form)
    tag = form.get("tag")
    errors = dict(read.errors)
    if not errors:
        try:
            view = await _kept(service, request, read, tag)
        except DefinitionError as error:
            for one in error.problems:
                _add(errors, slot_of(one.field, read.draft), one.to_dict())
        except LicenseRequired as error:
            errors = {
                "isolation" if "isolation" in error.message else "name": [f"{error.message} {error.hint}"]
            }
        except ToolkeepError as error:
            errors = {"version" if "higher" in error.message else "name": [f"{error.message}: {error.hint}"]}
        else:
            place = f"/ui/tools/{view.tool.name}".encode()
            return Answer(200, b"", b"text/plain", ((b"hx-redirect", place),))
    return request.renderer.page(
        request, "parts/definition_checked.html", **_slots(read, errors), is_sent=True
    )


async def _kept(service: Service, request: PageRequest, read: Read, tag: str) -> tools.ToolView:
    if not tag:
        return await definitions.create_definition(service.keep, request.caller, read.data)
    # What the form leaves empty goes back to its default: null says so.
    stored = service.keep.definition_versions(read.draft.name)[0].definition.to_dict()
    changes = {**dict.fromkeys(stored, None), "run": None, **read.data}
    return await definitions.update_definition(
        service.keep, request.caller, read.draft.name, changes, condition=tag
    )


async def _delete(service: Service, request: PageRequest) -> Answer:
    form = await request.form()
    name = request.names["name"]
    await definitions.delete_definition(service.keep, request.caller, name, condition=form.get("tag"))
    return Answer(200, b"", b"text/plain", ((b"hx-redirect", b"/ui/tools"),))


_SCOPES: Final = (Scope.TOOLS_WRITE,)

ROUTES: Final = (
    page_route("GET", "/ui/definitions/new", _new, _SCOPES),
    page_route("GET", "/ui/definitions/{name}", _edit, _SCOPES, NAME),
    page_route("POST", "/ui/definitions:check", _check, _SCOPES),
    page_route("POST", "/ui/definitions", _save, _SCOPES),
    page_route("POST", "/ui/definitions/{name}:delete", _delete, _SCOPES, NAME),
)
