"""Try a tool: a form or JSON becomes a call, validated or made as over `/v1`; a repair is offered."""

import asyncio
from typing import Any, Final, Literal

import jiter
import msgspec

from toolkeep.approval.question import Question
from toolkeep.audit.call_verdict import remedy_for
from toolkeep.calls import CheckedCall, Refusal, RegisteredTool, ToolResult
from toolkeep.definitions.secret_subschemas import has_secret
from toolkeep.server.api import call_routes, open_calls, policy_routes, tool_routes
from toolkeep.server.api.common_parameters import ID, NAME
from toolkeep.server.api.session_routes import ANY_SESSION
from toolkeep.server.http.responses import Response, json_bytes, send_response
from toolkeep.server.service import Service
from toolkeep.server.web.schema_form import (
    Collected,
    Field,
    collect,
    example_of,
    field_id,
    fields_of,
    fits,
    nearest,
    typed_values,
)
from toolkeep.server.web.web_request import Form, PageRequest, page_route
from toolkeep.stores.api_tokens import Scope
from toolkeep.validation.repair import apply_patch

Mode = Literal["form", "json"]


class Attempt(msgspec.Struct, kw_only=True):
    """The input of a trial and its result."""

    tool: RegisteredTool
    fields: list[Field]
    mode: Mode = "form"
    values: dict[str, str] = {}
    text: str = "{}"
    errors: dict[str, list[dict[str, str]]] = {}
    """By the id of a field; empty: about the call as a whole."""
    refusal: Refusal | None = None
    checked: CheckedCall | None = None
    original: str = ""
    """The agent whose refused call is tried again."""
    decided_for: str = ""
    decision: policy_routes.ExplainedCall | None = None
    """Whether that agent may make the checked call; None if the person may not know."""
    is_without_session: bool = False
    """Whether what the session of the original call had read may decide otherwise."""
    result: ToolResult | None = None
    waiting: open_calls.CallView | None = None
    is_repaired: bool = False
    is_example: bool = False


def attempt_data(attempt: Attempt) -> dict[str, Any]:
    """Template data of an attempt."""
    return {
        "attempt": attempt,
        "tool_name": attempt.tool.name,
        "has_secrets": has_secret(attempt.tool.definition.parameters),
        "unset": msgspec.UNSET,
    }


async def _try(service: Service, request: PageRequest) -> Response | None:
    name = request.names["name"]
    form = await request.form()
    attempt = read_attempt(service, request, name, form)
    if form.get("act") == "example":
        _fill(attempt)
        return _shown(request, attempt)
    arguments = _arguments(attempt, form)
    if arguments is not None:
        act = form.get("act")
        checked = tool_routes.check_call(service.keep, request.caller, name, arguments)
        if isinstance(checked, Refusal):
            _refused(attempt, checked, is_admin=request.caller.has_scope(Scope.ADMIN))
            if act == "repair":
                _repair(service, request, attempt, arguments, checked)
        elif act == "call":
            return await _call(service, request, attempt, arguments)
        else:
            attempt.checked = checked
            await _decide(service, request, attempt, arguments)
    return _shown(request, attempt)


async def _decide(service: Service, request: PageRequest, attempt: Attempt, arguments: bytes) -> None:
    """Decide on a valid call: of the agent whose call is tried again, else of the person's own."""
    caller = request.caller
    agent = attempt.decided_for = attempt.original or caller.agent
    if caller.has_scope(Scope.POLICIES_READ) and (agent == caller.agent or caller.has_scope(Scope.ADMIN)):
        body = policy_routes.ExplainBody(
            tool=attempt.tool.name, arguments=jiter.from_json(arguments), agent=agent
        )
        attempt.decision = await policy_routes.explain_call(service.keep, caller, body)
        # A yes without the session would tell the person that a call passes which flow policies deny.
        attempt.is_without_session = bool(attempt.original) and service.keep.authorizer.flow is not None


def _fill(attempt: Attempt) -> None:
    """Put an example into the form, in place of what was typed."""
    example = example_of(tool_routes.public_definition(attempt.tool)["parameters"])
    attempt.values, attempt.text = typed_values(attempt.fields, example), pretty_json(example)
    attempt.is_example = True


def pretty_json(value: Any) -> str:
    """JSON for a person to edit."""
    return msgspec.json.format(json_bytes(value), indent=2).decode()


def _shown(request: PageRequest, attempt: Attempt) -> Response:
    _forget_secrets(attempt)
    return request.renderer.page(request, "parts/try.html", **attempt_data(attempt))


def read_attempt(service: Service, request: PageRequest, name: str, form: Form) -> Attempt:
    """Read the input, without validating it."""
    tool = tool_routes.find_tool(service.keep, request.caller, name)
    shown = tool_routes.public_definition(tool)["parameters"]
    mode: Mode = "json" if form.get("mode") == "json" else "form"
    fields = fields_of(tool.definition.parameters, shown)
    return Attempt(tool=tool, fields=fields, mode=mode, original=form.get("original"))


def _arguments(attempt: Attempt, form: Form) -> bytes | None:
    """The arguments as JSON text; None if a field could not be read."""
    if attempt.mode == "json":
        attempt.text = form.get("text")
        return attempt.text.encode("utf-8", "surrogatepass")
    collected: Collected = collect(attempt.fields, form)
    attempt.values = collected.values
    attempt.errors = {
        field_id(pointer): [{"message": message, "suggestion": ""}]
        for pointer, message in collected.errors.items()
    }
    return None if collected.errors else json_bytes(collected.arguments)


def _refused(attempt: Attempt, refusal: Refusal, *, is_admin: bool) -> None:
    attempt.refusal = refusal
    attempt.errors = {}
    for violation in refusal.errors:
        field = nearest(attempt.fields, violation.path) if attempt.mode == "form" else None
        said = {
            "message": violation.message,
            "suggestion": remedy_for(violation) if is_admin else violation.suggestion,
            "code": violation.code.value,
            "path": violation.path,
        }
        attempt.errors.setdefault(field.id if field else "", []).append(said)


def _repair(
    service: Service, request: PageRequest, attempt: Attempt, arguments: bytes, refusal: Refusal
) -> None:
    """Put the suggested repair into the form; the person still has to send it."""
    if refusal.repair is None:
        return
    fixed = apply_patch(jiter.from_json(arguments), refusal.repair)
    if fixed is None:
        return
    checked = tool_routes.check_call(service.keep, request.caller, attempt.tool.name, json_bytes(fixed))
    if isinstance(checked, Refusal):
        return
    attempt.refusal, attempt.errors, attempt.is_repaired = None, {}, True
    attempt.values = typed_values(attempt.fields, fixed)
    attempt.text = json_bytes(fixed).decode()
    if attempt.mode == "form" and not fits(attempt.fields, fixed):
        attempt.mode = "json"


def _forget_secrets(attempt: Attempt) -> None:
    """Clear the input if the tool takes secrets: a page must not contain them again."""
    if has_secret(attempt.tool.definition.parameters):
        attempt.text = "{}"


async def _call(
    service: Service, request: PageRequest, attempt: Attempt, arguments: bytes
) -> Response | None:
    """Make the call; if it needs approval, respond at once and let the page poll."""
    task = asyncio.current_task()
    waiting: open_calls.OpenCall | None = None

    async def tell(question: Question) -> None:
        nonlocal waiting
        if waiting is None and task is not None:
            waiting = await service.calls.open(question, task, ANY_SESSION)
            attempt.waiting = open_calls.view_of(waiting)
            await send_response(request.send, _shown(request, attempt))

    body = call_routes.RawCall(arguments=msgspec.Raw(arguments))
    try:
        with service.calls.counted():
            attempt.result = await call_routes.call_tool(
                service.keep, request.caller, attempt.tool.name, body, asked=tell
            )
    except asyncio.CancelledError:
        if waiting is None:
            raise
    finally:
        if waiting is not None:
            await service.calls.end(waiting, attempt.result)
    return _shown(request, attempt) if waiting is None else None


async def _outcome(service: Service, request: PageRequest) -> Response:
    """The result of a call that waited for approval."""
    call = await service.calls.find(request.caller, request.names["id"])
    waiting = open_calls.view_of(call) if call.result is None else None
    return request.renderer.page(
        request, "parts/outcome.html", result=call.result, waiting=waiting, tool_name=call.tool
    )


ROUTES: Final = (
    page_route("POST", "/ui/tools/{name}:try", _try, (Scope.CALL,), NAME, is_long=True),
    page_route("GET", "/ui/calls/{id}/outcome", _outcome, (Scope.CALL,), ID),
)
