"""Create and edit custom definitions: validated while typing, stored by the same functions as over `/v1`."""

from typing import Any, Final

from toolkeep.definitions.vocabulary import Isolation, Tier
from toolkeep.errors import Code, DefinitionError, LicenseRequired, StoreConflict, ToolkeepError
from toolkeep.keep.keep import Keep
from toolkeep.registry.tiers import ALLOWANCES
from toolkeep.registry.tool_provider import STORE
from toolkeep.server.api import definition_routes, tool_routes
from toolkeep.server.api.common_parameters import NAME
from toolkeep.server.http.problem_details import RequestRefused, not_found
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service
from toolkeep.server.web import definition_form
from toolkeep.server.web.definition_form import Draft, ParameterDraft, Read, draft_of, read_draft, slot_of
from toolkeep.server.web.fresh_sign_in import confirm_data, page_confirmation
from toolkeep.server.web.tools_page import custom_lock, may_create
from toolkeep.server.web.web_request import Form, PageRequest, page_route
from toolkeep.stores.api_tokens import Scope

_SLOTS: Final = (
    "name", "description", "version", "category", "danger", "parameters", "output_schema", "timeout_s",
    "output_kb", "isolation", "side_effects", "capabilities", "more", "typed-name",
)  # fmt: skip
_REFUSED: Final = {Code.NOT_CONFIRMED: "typed-name", Code.SCOPE_MISSING: "danger"}
"""Where it is said that fewer calls would need approval, which has to be confirmed."""
_FIRST: Final = Draft(parameters=(ParameterDraft(mark="k0"),))


async def _new(service: Service, request: PageRequest) -> Response:
    if may_create(service.keep, request.caller) == "closed":
        raise not_found("page")
    return _form(service, request, _FIRST, is_new=True)


async def _edit(service: Service, request: PageRequest) -> Response:
    view = tool_routes.show_tool(service.keep, request.caller, request.names["name"])
    tool = tool_routes.find_tool(service.keep, request.caller, request.names["name"])
    if tool.provider != STORE:
        raise not_found("stored definition")
    stored = service.keep.definition_versions(tool.name)[0]  # what is shown; it may be newer than the tool
    is_run = stored.run is not None
    if not definition_routes.may_see_whole(request.caller, stored.definition, is_run=is_run):
        raise RequestRefused(
            Code.SCOPE_MISSING,
            "this definition names what runs it, or has secret parts",
            hint="only the scope admin may see it whole, and change it",
        )
    data = stored.definition.to_dict()
    if stored.run is not None:
        data["run"] = stored.run
    return _form(service, request, draft_of(data), is_new=False, tag=view.tag)


def _form(service: Service, request: PageRequest, draft: Draft, **more: Any) -> Response:
    return request.renderer.page(
        request,
        "definition.html",
        draft=draft,
        lock=custom_lock(service.keep),
        isolations=_isolations(service.keep),
        categories=definition_form.CATEGORIES,
        dangers=definition_form.DANGERS,
        types=definition_form.TYPES,
        effects=definition_form.EFFECTS,
        errors={},
        **{"tag": "", **more},
    )


def _isolations(keep: Keep) -> list[tuple[str, str]]:
    """The isolation levels, with the tier that each needs if this keep does not include it."""
    return [(level, _needed(keep, Isolation(level))) for level in definition_form.ISOLATIONS]


def _needed(keep: Keep, level: Isolation) -> str:
    if level.rank <= ALLOWANCES[keep.tier].isolation.rank:
        return ""
    return next(tier.value for tier in Tier if ALLOWANCES[tier].isolation.rank >= level.rank)


async def _check(service: Service, request: PageRequest) -> Response:
    """Validate the form and show each problem at its field."""
    form = await request.form()
    read = read_draft(form)
    report = await definition_routes.check_definition(service.keep, request.caller, read.data)
    errors = {slot: list(messages) for slot, messages in read.errors.items()}
    for problem in report.problems:
        _add(errors, slot_of(problem["field"], read.draft), problem)
    is_stored = report.replaces or any(one["code"] == Code.STORE_CONFLICT.value for one in report.problems)
    if is_stored and not form.get("tag"):
        errors = {"name": [f"tool '{read.draft.name}' is stored already: edit it on its page"]}
    data = {**_slots(read, errors), "report": report}
    return request.renderer.page(request, "parts/definition_checked.html", **data)


def _add(errors: dict[str, list[str]], slot: str, problem: dict[str, str]) -> None:
    fix = problem.get("fix", "")
    where = problem["field"] if slot in ("more", "parameters") and slot != problem["field"] else ""
    said = f"{where} {problem['message']}".strip() + (f": {fix}" if fix else "")
    if said not in errors.setdefault(slot, []):
        errors[slot].append(said)


def _slots(read: Read, errors: dict[str, list[str]]) -> dict[str, Any]:
    parameters = [f"p-{one.mark}" for one in read.draft.parameters]
    return {"slots": [*_SLOTS, *parameters], "errors": errors, "draft": read.draft}


async def _save(service: Service, request: PageRequest) -> Response:
    form = await request.form()
    read = read_draft(form)
    errors = dict(read.errors)
    asks: dict[str, Any] = {}
    if not errors:
        try:
            view = await _kept(service, request, form, read)
        except DefinitionError as error:
            for one in error.problems:
                _add(errors, slot_of(one.field, read.draft), one.to_dict())
        except LicenseRequired as error:
            errors = {
                "isolation" if "isolation" in error.message else "name": [f"{error.message} {error.hint}"]
            }
        except RequestRefused as error:
            asks = confirm_data(request) if error.code is Code.NOT_CONFIRMED else {}
            errors = {_REFUSED.get(error.code, "name"): [f"{error.message}: {error.hint}"]}
        except ToolkeepError as error:
            field = error.field if isinstance(error, StoreConflict) else "name"
            errors = {field: [f"{error.message}: {error.hint}"]}
        else:
            place = f"/ui/tools/{view.tool.name}".encode()
            return Response(200, b"", b"text/plain", ((b"hx-redirect", place),))
    return request.renderer.page(
        request,
        "parts/definition_checked.html",
        **_slots(read, errors),
        is_sent=True,
        **asks,
    )


async def _kept(service: Service, request: PageRequest, form: Form, read: Read) -> tool_routes.ToolView:
    said = page_confirmation(request, form)
    return await definition_routes.put_definition(service.keep, said, read.data, condition=form.get("tag"))


async def _delete(service: Service, request: PageRequest) -> Response:
    form = await request.form()
    name = request.names["name"]
    await definition_routes.delete_definition(service.keep, request.caller, name, condition=form.get("tag"))
    return Response(200, b"", b"text/plain", ((b"hx-redirect", b"/ui/tools"),))


_SCOPES: Final = (Scope.TOOLS_WRITE,)

ROUTES: Final = (
    page_route("GET", "/ui/definitions/new", _new, _SCOPES),
    page_route("GET", "/ui/definitions/{name}", _edit, _SCOPES, NAME),
    page_route("POST", "/ui/definitions:check", _check, _SCOPES),
    page_route("POST", "/ui/definitions", _save, _SCOPES),
    page_route("POST", "/ui/definitions/{name}:delete", _delete, _SCOPES, NAME),
)
