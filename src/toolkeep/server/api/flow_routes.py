"""Roles and labels of an imported tool, which a person declares (FLO-1): shown, previewed, put in force.

A declaration is what `upstreams.NAME.flow` of a configuration would say of the tool. It is made only if its
preview is still true: `seen` names the declaration and the definition that it was shown for.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.argument_roles import RESULT
from toolkeep.definitions.result_labels import OUTSIDE, SYSTEM, Label, read_label
from toolkeep.definitions.vocabulary import Form, Role, ToolState
from toolkeep.errors import Code, NotAccepted
from toolkeep.flow.flow_plan import make_plan
from toolkeep.flow.undeclared import places_without_label
from toolkeep.json_values.canonical import canonical_hash
from toolkeep.json_values.pointers import escaped
from toolkeep.keep.keep import Keep
from toolkeep.registry.declared_flow import check_flow, undeclared_tool
from toolkeep.registry.registry import OTHER_FLOW
from toolkeep.server.api.admin_change import Change, Confirmation, bearer_confirmation, put_in_force
from toolkeep.server.api.common_parameters import NAME
from toolkeep.server.api.tool_routes import find_tool, tag_of_tool
from toolkeep.server.http.bearer_auth import Caller, check_scope
from toolkeep.server.http.problem_details import RequestRefused, not_found
from toolkeep.server.http.request import Request
from toolkeep.server.http.responses import Response, json_response
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import Scope

_TEXT: Final = Form.TEXT.value
LABELS: Final = (
    (_TEXT, "text, written by anybody"),
    *((f"{SYSTEM} {form.value}", f"{form.value}, made by the service") for form in Form),
    *(
        (f"{OUTSIDE} {form.value}", f"{form.value}, chosen by anybody")
        for form in Form
        if form is not Form.TEXT
    ),
)
"""The labels of a place of a result, and what each says."""
_WORDS: Final = dict(LABELS)
_MEANINGS: Final = {
    Role.CONTENT: "only stored, sent or shown; nobody is asked about its value",
    Role.OPTION: "how the call is carried out; nobody is asked about its value",
}
_NOTHING: Final = "Nothing: every argument and every text counts as the worst."
_CONFIGURED: Final = "What the configuration says counts again."


class FlowBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is declared about an imported tool, in place of everything that is declared now."""

    declared: dict[str, Any] | None
    """Roles by JSON Pointer of the argument, and under `result` labels by JSON Pointer into the result; null
    for what the configuration says."""
    seen: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """`seen` of the preview; without it, nothing is changed and the preview is given."""
    typed_name: Annotated[str, msgspec.Meta(max_length=256)] = ""
    """The name of the tool, to confirm it."""


class FlowView(msgspec.Struct, frozen=True, kw_only=True):
    """What is declared about the flow of an imported tool."""

    tool: str
    declared: dict[str, Any]
    lines: list[str]
    """The same in words."""
    is_stored: bool
    """Whether a person declared it here, in place of the configuration."""
    by_default: dict[str, str]
    """Roles that arguments have without a declaration, by JSON Pointer."""
    unlabelled: list[str]
    """Texts of the result without a label, by JSON Pointer: anybody may have written them."""


class FlowChange(msgspec.Struct, frozen=True, kw_only=True):
    """A declaration that would be put in force, or was."""

    tool: str
    lines: list[str]
    """What it promises for the upstream, in words."""
    difference: list[str]
    seen: str
    typed_name: str
    """What has to be typed."""
    is_done: bool = False


def find_import(keep: Keep, caller: Caller, name: str) -> RegisteredTool:
    """An imported tool in use, the newest version; raises for any other."""
    tool = keep.versions(find_tool(keep, caller, name).name)[0]
    if not is_declarable(tool):
        raise not_found("imported tool")
    return tool


def is_declarable(tool: RegisteredTool) -> bool:
    """Whether the flow of a tool is declared here; that of our own tools is where they are defined."""
    is_held_back = tool.state is ToolState.QUARANTINED and tool.why != OTHER_FLOW
    return tool.provider.startswith("upstream:") and not is_held_back


def show_flow(keep: Keep, caller: Caller, name: str) -> FlowView:
    """What is declared about a tool."""
    check_scope(caller, (Scope.ADMIN,))
    tool = find_import(keep, caller, name)
    stored, plan = keep.declared_flow(tool.name), make_plan(tool)
    declared = _in_force(tool) if stored is None else dict(stored)
    return FlowView(
        tool=tool.name,
        declared=declared,
        lines=list(_lines(declared)),
        is_stored=stored is not None,
        by_default={
            f"/{escaped(one)}": plan.role(one).value
            for one in tool.definition.properties
            if one not in tool.definition.roles
        },
        unlabelled=[place for place in text_places(tool) if place not in declared.get(RESULT, {})],
    )


def text_places(tool: RegisteredTool) -> list[str]:
    """The texts in the result that its definition describes."""
    plain = tool.definition.replace(flow={})
    return list(places_without_label(make_plan(msgspec.structs.replace(tool, definition=plain)), plain))


def preview(keep: Keep, caller: Caller, name: str, declared: Mapping[str, Any] | None) -> FlowChange:
    """What a declaration says, and what would change. Nothing is changed.

    Raises `DefinitionInvalid` for one that does not fit the definition.
    """
    check_scope(caller, (Scope.ADMIN,))
    tool = find_import(keep, caller, name)
    if declared is not None:
        check_flow(undeclared_tool(tool), declared)
    elif keep.declared_flow(tool.name) is None:
        raise NotAccepted(
            f"nobody declared the flow of {tool.name!r}", hint="the configuration counts already"
        )
    lines = [_CONFIGURED] if declared is None else list(_lines(declared)) or [_NOTHING]
    before = [f"-{one}" for one in _lines(_in_force(tool))]
    return FlowChange(
        tool=tool.name,
        lines=lines,
        difference=[*before, *(f"+{one}" for one in lines)],
        # The tag is of the definition with its roles and labels: another person's declaration changes it.
        seen=canonical_hash([declared, tag_of_tool(keep, tool)]),
        typed_name=tool.name,
    )


async def change_flow(keep: Keep, said: Confirmation, name: str, body: FlowBody) -> FlowChange:
    """Preview a declaration, or put it in force if that is still true; raises if it is not confirmed."""
    shown = await asyncio.to_thread(preview, keep, said.caller, name, body.declared)
    if not body.seen:
        return shown
    _check_seen(shown, body)

    def apply() -> None:
        # Other words or another definition by now: it was confirmed for this one alone.
        _check_seen(preview(keep, said.caller, name, body.declared), body)
        keep.declare_flow(shown.tool, body.declared, by=said.caller.agent)

    change = Change(what="flow", name=shown.tool, difference="\n".join(shown.difference))
    await put_in_force(keep, said, change, apply)
    return msgspec.structs.replace(shown, is_done=True)


def _check_seen(shown: FlowChange, body: FlowBody) -> None:
    if shown.seen != body.seen:
        raise RequestRefused(
            Code.CHANGED_MEANWHILE, "the tool has changed since the preview", hint="preview it again"
        )


def _in_force(tool: RegisteredTool) -> dict[str, Any]:
    definition = tool.definition
    roles = {f"/{escaped(name)}": role.value for name, role in definition.roles.items()}
    return {**roles, RESULT: dict(definition.flow)} if definition.flow else roles


def _lines(declared: Mapping[str, Any]) -> Iterator[str]:
    """What an operator is asked to accept, in words."""
    for pointer, word in declared.items():
        if pointer != RESULT:
            role = Role.read(word)
            meaning = _MEANINGS.get(role, "asked about unless the user or a service named it")
            yield f"Argument {pointer[1:]}: {role.value}, {meaning}."
    for place, said in (declared.get(RESULT) or {}).items():
        label = read_label(said)
        secret = "; only the user may know it" if label.is_secret else ""
        yield f"{place or 'The whole result'}: {_WORDS[label_word(label)]}{secret}."


def label_word(label: Label) -> str:
    """Its word among `LABELS`."""
    if label.form is Form.TEXT and not label.is_system:
        return _TEXT
    return f"{SYSTEM if label.is_system else OUTSIDE} {label.form.value}"


async def _show(service: Service, request: Request) -> Response:
    return json_response(show_flow(service.keep, request.caller, request.names["name"]))


async def _declare(service: Service, request: Request) -> Response:
    body = await request.read(FlowBody)
    said = bearer_confirmation(request.caller, body.typed_name)
    return json_response(await change_flow(service.keep, said, request.names["name"], body))


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/tools/{name}/flow",
        name="showFlow",
        about="The roles and labels that are declared about an imported tool.",
        handler=_show,
        scopes=(Scope.ADMIN,),
        tag="tools",
        parameters=(NAME,),
        gives={200: ResponseSpec(about="What is declared.", kind=FlowView)},
        problems=(404,),
    ),
    Route(
        method="POST",
        path="/v1/tools/{name}:declare",
        name="declareFlow",
        about="Declare roles and labels of an imported tool, or take that back: preview it, then make it.",
        handler=_declare,
        scopes=(Scope.ADMIN,),
        tag="tools",
        parameters=(NAME,),
        body=FlowBody,
        gives={200: ResponseSpec(about="What would change, or did.", kind=FlowChange)},
        problems=(404, 409, 412, 422),
    ),
)
