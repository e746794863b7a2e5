"""Roles and labels of an imported tool, declared on its page (FLO-1): a person's act, like `toolkeep accept`.

A form becomes a declaration. It is shown back in words, and put in force once an admin has confirmed exactly
that for exactly the definition that the form was made for.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.argument_roles import RESULT
from toolkeep.definitions.result_labels import OUTSIDE, read_label
from toolkeep.definitions.vocabulary import Form as ValueForm
from toolkeep.definitions.vocabulary import Role
from toolkeep.errors import DefinitionError, NotAccepted
from toolkeep.json_values.pointers import escaped
from toolkeep.keep.keep import Keep
from toolkeep.server.api import flow_routes, tool_routes
from toolkeep.server.api.common_parameters import NAME
from toolkeep.server.api.flow_routes import LABELS, FlowBody, label_word
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service
from toolkeep.server.web.fresh_sign_in import confirm_data, page_confirmation
from toolkeep.server.web.web_request import Form, PageRequest, page_route
from toolkeep.stores.api_tokens import Scope

_CHANGED: Final = "the tool has changed since you read it: reload the page"
_TEXT: Final = ValueForm.TEXT.value


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
    if not caller.has_scope(Scope.ADMIN) or not flow_routes.is_declarable(tool):
        return {"flow": None}
    return _view(keep, caller, tool)


def _view(
    keep: Keep, caller: Caller, tool: RegisteredTool, declared: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Template data; without `declared`, of what is in force."""
    view = flow_routes.show_flow(keep, caller, tool.name)
    said = view.declared if declared is None else declared
    pointers = {name: f"/{escaped(name)}" for name in tool.definition.properties}
    return {
        "flow": {
            "roles": [
                RoleRow(name, said.get(pointer, ""), view.by_default.get(pointer, ""))
                for name, pointer in pointers.items()
            ],
            "labels": list(_label_rows(tool, said.get(RESULT) or {})),
            "is_stored": view.is_stored,
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
    places = dict.fromkeys(["", *flow_routes.text_places(tool), *labels])
    for number, place in enumerate(places):
        if place not in labels:
            yield LabelRow(number, place)
            continue
        label = read_label(labels[place])
        yield LabelRow(number, place, label_word(label), label.is_secret)
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


async def _declare(service: Service, request: PageRequest) -> Response:
    keep, form = service.keep, await request.form()
    tool = flow_routes.find_import(keep, request.caller, request.names["name"])
    declared, errors = _read(form, tool)
    if form.get("tag") != tool_routes.tag_of_tool(keep, tool):
        errors = [_CHANGED]
    try:
        shown = flow_routes.preview(keep, request.caller, tool.name, declared)
    except DefinitionError as error:
        errors += [f"{one.field} {one.message}: {one.fix}" for one in error.problems]
    if errors:
        return _shown(keep, request, tool, _readable(declared), errors=errors)
    # The operator accepts what was shown, for the definition that it was shown for.
    if form.get("accepted") == shown.seen:
        try:
            return await _put(keep, request, form, tool, FlowBody(declared=declared, seen=shown.seen))
        except RequestRefused as refused:
            errors = [_said(refused)]
    return _shown(keep, request, tool, declared, errors=errors, lines=shown.lines, accepted=shown.seen)


def _readable(declared: dict[str, Any]) -> dict[str, Any]:
    """A declaration that the form can show again; nothing of one with words that the form does not offer."""
    try:
        for said in declared.get(RESULT, {}).values():
            read_label(said)
    except ValueError:
        return {}
    return declared


async def _undeclare(service: Service, request: PageRequest) -> Response:
    keep, form = service.keep, await request.form()
    tool = flow_routes.find_import(keep, request.caller, request.names["name"])
    try:
        shown = flow_routes.preview(keep, request.caller, tool.name, None)
        return await _put(keep, request, form, tool, FlowBody(declared=None, seen=shown.seen))
    except (RequestRefused, NotAccepted) as refused:
        return _shown(keep, request, tool, errors=[_said(refused)])


async def _put(
    keep: Keep, request: PageRequest, form: Form, tool: RegisteredTool, body: FlowBody
) -> Response:
    await flow_routes.change_flow(keep, page_confirmation(request, form), tool.name, body)
    return Response(200, b"", b"text/plain", ((b"hx-refresh", b"true"),))


def _shown(
    keep: Keep,
    request: PageRequest,
    tool: RegisteredTool,
    declared: Mapping[str, Any] | None = None,
    **more: Any,
) -> Response:
    view = _view(keep, request.caller, tool, declared, **more)
    return request.renderer.page(
        request, "parts/flow.html", tool=tool_routes.summary(tool), **view, **confirm_data(request)
    )


def _said(refused: RequestRefused | NotAccepted) -> str:
    return f"{refused.message}: {refused.hint}" if refused.hint else refused.message


ROUTES: Final = (
    page_route("POST", "/ui/tools/{name}:declare", _declare, (Scope.ADMIN,), NAME),
    page_route("POST", "/ui/tools/{name}:undeclare", _undeclare, (Scope.ADMIN,), NAME),
)
