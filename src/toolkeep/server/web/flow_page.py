"""Roles and labels of an imported tool, declared on its page (FLO-1): a person's act, like `toolkeep accept`.

A form becomes what `upstreams.NAME.flow` of a configuration would say. It is shown back in words, and put in
force once an admin has confirmed exactly that for exactly the definition that the form was made for.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.argument_roles import RESULT
from toolkeep.definitions.result_labels import OUTSIDE, SYSTEM, read_label
from toolkeep.definitions.vocabulary import Form as ValueForm
from toolkeep.definitions.vocabulary import Role, ToolState
from toolkeep.errors import Code, DefinitionError
from toolkeep.flow.flow_plan import make_plan
from toolkeep.flow.undeclared import places_without_label
from toolkeep.json_values.canonical import canonical_hash
from toolkeep.json_values.pointers import escaped
from toolkeep.keep.keep import Keep
from toolkeep.registry.declared_flow import check_flow, undeclared_tool
from toolkeep.registry.registry import OTHER_FLOW
from toolkeep.server.api import tool_routes
from toolkeep.server.api.admin_change import Change, put_in_force
from toolkeep.server.api.common_parameters import NAME
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import RequestRefused, not_found
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service
from toolkeep.server.web.fresh_sign_in import confirm_data, page_confirmation
from toolkeep.server.web.web_request import Form, PageRequest, page_route
from toolkeep.stores.api_tokens import Scope

_CHANGED: Final = "the tool has changed since you read it: reload the page"
_TEXT: Final = ValueForm.TEXT.value
LABELS: Final = (
    (_TEXT, "text, written by anybody"),
    *((f"{SYSTEM} {form.value}", f"{form.value}, made by the service") for form in ValueForm),
    *(
        (f"{OUTSIDE} {form.value}", f"{form.value}, chosen by anybody")
        for form in ValueForm
        if form is not ValueForm.TEXT
    ),
)
"""The choices for a place of a result, and what each says."""
_MEANINGS: Final = {
    Role.CONTENT: "only stored, sent or shown; nobody is asked about its value",
    Role.OPTION: "how the call is carried out; nobody is asked about its value",
}


class RoleRow(msgspec.Struct, frozen=True):
    """One parameter in the form."""

    name: str
    role: str
    default: str
    """The role that it has without a declaration; empty if that is not known here."""


class LabelRow(msgspec.Struct, frozen=True):
    """One place of the result in the form."""

    number: int
    place: str
    label: str = ""
    is_secret: bool = False


def flow_data(keep: Keep, caller: Caller, tool: RegisteredTool) -> dict[str, Any]:
    """What the page of a tool shows of its flow; nothing for tools whose flow is declared elsewhere."""
    if not caller.has_scope(Scope.ADMIN) or not _is_declarable(tool):
        return {"flow": None}
    stored = keep.declared_flow(tool.name)
    declared = stored if stored is not None else _declared(tool)
    return _view(keep, tool, declared, is_stored=stored is not None)


def _is_declarable(tool: RegisteredTool) -> bool:
    is_held_back = tool.state is ToolState.QUARANTINED and tool.why != OTHER_FLOW
    return tool.provider.startswith("upstream:") and not is_held_back


def _declared(tool: RegisteredTool) -> dict[str, Any]:
    definition = tool.definition
    roles = {f"/{escaped(name)}": role.value for name, role in definition.roles.items()}
    return {**roles, RESULT: dict(definition.flow)} if definition.flow else roles


def _view(
    keep: Keep, tool: RegisteredTool, declared: Mapping[str, Any], *, is_stored: bool, **more: Any
) -> dict[str, Any]:
    definition, plan = tool.definition, make_plan(tool)
    roles = [
        RoleRow(
            name,
            declared.get(f"/{escaped(name)}", ""),
            "" if name in definition.roles else plan.role(name).value,
        )
        for name in definition.properties
    ]
    return {
        "flow": {
            "roles": roles,
            "labels": list(_label_rows(tool, declared.get(RESULT) or {})),
            "is_stored": is_stored,
            "tag": tool_routes.tag_of_tool(keep, tool),
            "errors": [],
            "lines": [],
            "accepted": "",
            **more,
        },
        "role_words": [role.value for role in Role],
        "label_words": LABELS,
    }


def _label_rows(tool: RegisteredTool, labels: Mapping[str, Any]) -> Iterator[LabelRow]:
    """The whole result, every text in its schema, every label, and one row for another place."""
    plain = tool.definition.replace(flow={})
    known = places_without_label(make_plan(msgspec.structs.replace(tool, definition=plain)), plain)
    places = dict.fromkeys(["", *known, *labels])
    for number, place in enumerate(places):
        if place not in labels:
            yield LabelRow(number, place)
            continue
        label = read_label(labels[place])
        is_text = label.form is ValueForm.TEXT and not label.is_system
        word = _TEXT if is_text else f"{SYSTEM if label.is_system else OUTSIDE} {label.form.value}"
        yield LabelRow(number, place, word, label.is_secret)
    yield LabelRow(len(places), "")


def _read(form: Form, tool: RegisteredTool) -> tuple[dict[str, Any], list[str]]:
    """The declaration in a form, and what is wrong with it."""
    errors: list[str] = []
    declared: dict[str, Any] = {}
    for name in tool.definition.properties:
        if role := form.get(f"role.{name}"):
            declared[f"/{escaped(name)}"] = role
    labels: dict[str, Any] = {}
    for key, place in form.pairs:
        mark, _, number = key.partition(".")
        word = form.get(f"label.{number}")
        if mark != "place" or (not word and f"secret.{number}" not in form):
            continue
        if place in labels:
            errors.append(f"{place or 'the whole result'} is there twice: give it one label")
        labels[place] = _label(word or _TEXT, is_secret=f"secret.{number}" in form)
    return ({**declared, RESULT: labels} if labels else declared), errors


def _label(word: str, *, is_secret: bool) -> Any:
    made_by, _, form = word.partition(" ")
    readers = {"readers": ["user"]} if is_secret else {}
    if made_by == _TEXT:
        return {OUTSIDE: _TEXT, **readers} if is_secret else _TEXT
    return {made_by: form, **readers}


def _lines(declared: Mapping[str, Any]) -> Iterator[str]:
    """What the operator is asked to accept, in words."""
    for pointer, word in declared.items():
        if pointer != RESULT:
            meaning = _MEANINGS.get(Role.read(word), "asked about unless the user or a service named it")
            yield f"Argument {pointer[1:]}: {word}, {meaning}."
    words = dict(LABELS)
    for place, said in (declared.get(RESULT) or {}).items():
        label = read_label(said)
        made_by = SYSTEM if label.is_system else OUTSIDE
        is_text = label.form is ValueForm.TEXT and not label.is_system
        secret = "; only the user may know it" if label.is_secret else ""
        what = words[_TEXT if is_text else f"{made_by} {label.form.value}"]
        yield f"{place or 'The whole result'}: {what}{secret}."


async def _declare(service: Service, request: PageRequest) -> Response:
    keep, form = service.keep, await request.form()
    tool = _found(keep, request)
    declared, errors = _read(form, tool)
    tag = tool_routes.tag_of_tool(keep, tool)
    if form.get("tag") != tag:
        errors = [_CHANGED]
    try:
        lines = list(_lines(declared)) or ["Nothing: every argument and every text counts as the worst."]
    except ValueError as error:  # a word that the form does not offer
        declared, lines, errors = {}, [], [str(error)]
    errors += _problems(tool, declared)
    # The operator accepts what was shown, for the definition that it was shown for.
    seal = "" if errors else canonical_hash([declared, tag])
    if seal and form.get("accepted") == seal:
        try:
            return await _put(keep, request, form, tool, declared)
        except RequestRefused as refused:
            errors = [_said(refused)]
    more = {"errors": errors, "lines": lines if seal else [], "accepted": seal}
    return _shown(keep, request, tool, declared, more)


async def _put(
    keep: Keep, request: PageRequest, form: Form, tool: RegisteredTool, declared: dict[str, Any] | None
) -> Response:
    """Put a declaration in force, or take it back; raises `RequestRefused` if it is not confirmed."""
    tag = tool_routes.tag_of_tool(keep, tool)

    def apply() -> None:
        # Other words or another definition by now: it was confirmed for this one alone.
        if tool_routes.tag_of_tool(keep, keep.get(tool.name)) != tag:
            raise RequestRefused(Code.CHANGED_MEANWHILE, _CHANGED)
        keep.declare_flow(tool.name, declared, by=request.caller.agent)

    change = Change(what="flow", name=tool.name, difference=_difference(tool, declared))
    await put_in_force(keep, page_confirmation(request, form), change, apply)
    return Response(200, b"", b"text/plain", ((b"hx-refresh", b"true"),))


def _difference(tool: RegisteredTool, declared: dict[str, Any] | None) -> str:
    """What is declared now and then, in the words that the operator read."""
    after = ["What the configuration says counts again."] if declared is None else _lines(declared)
    before = _lines(_declared(tool))
    return "\n".join((*(f"-{one}" for one in before), *(f"+{one}" for one in after)))


def _shown(
    keep: Keep, request: PageRequest, tool: RegisteredTool, declared: Mapping[str, Any], more: dict[str, Any]
) -> Response:
    is_stored = keep.declared_flow(tool.name) is not None
    view = _view(keep, tool, declared, is_stored=is_stored, **more)
    return request.renderer.page(
        request, "parts/flow.html", tool=tool_routes.summary(tool), **view, **confirm_data(request)
    )


def _problems(tool: RegisteredTool, declared: Mapping[str, Any]) -> list[str]:
    try:
        check_flow(undeclared_tool(tool), declared)
    except DefinitionError as error:
        return [f"{one.field} {one.message}: {one.fix}" for one in error.problems]
    return []


async def _undeclare(service: Service, request: PageRequest) -> Response:
    keep, form = service.keep, await request.form()
    tool = _found(keep, request)
    try:
        return await _put(keep, request, form, tool, None)
    except RequestRefused as refused:
        more = {"errors": [_said(refused)]}
        return _shown(keep, request, tool, keep.declared_flow(tool.name) or _declared(tool), more)


def _said(refused: RequestRefused) -> str:
    return f"{refused.message}: {refused.hint}" if refused.hint else refused.message


def _found(keep: Keep, request: PageRequest) -> RegisteredTool:
    tool = tool_routes.find_tool(keep, request.caller, request.names["name"])
    if not _is_declarable(tool):
        raise not_found("imported tool")
    return tool


ROUTES: Final = (
    page_route("POST", "/ui/tools/{name}:declare", _declare, (Scope.ADMIN,), NAME),
    page_route("POST", "/ui/tools/{name}:undeclare", _undeclare, (Scope.ADMIN,), NAME),
)
