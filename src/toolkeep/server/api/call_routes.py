"""Calls over HTTP, made as the token's agent. A call that needs approval is answered with 202 and continues.

One `:call` request is answered with JSON or as an SSE stream:

    JSON        200 result | 202 pending | a problem document
    events      progress … output … pending … then one `result` or `problem`

A client that disconnects cancels its call, unless it was told that the call waits for approval.

`defer_to_inbox` is the approver of a served keep. It never approves: it tells the caller that approval is
pending. People answer through `/v1/approvals`, the web interface or `toolkeep approve`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from toolkeep.approval.question import Answer, Question
from toolkeep.calls import Output, Progress, ToolResult
from toolkeep.errors import Code, StoreUnavailable
from toolkeep.keep.keep import Keep
from toolkeep.limits import POLL_SECONDS
from toolkeep.mcp_server.client_approvals import ask_client
from toolkeep.mcp_server.http_response import Reply
from toolkeep.mcp_server.tools_call import from_any_thread
from toolkeep.server.api.common_parameters import ID, KEY, NAME
from toolkeep.server.api.open_calls import CallView, OpenCall, RunningCalls, view_of
from toolkeep.server.api.session_routes import ANY_SESSION, note_shown, state_owner
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import TRY_AGAIN, RequestRefused, document, of_result, problem
from toolkeep.server.http.request import Parameter, Request, read_raw
from toolkeep.server.http.responses import Response, json_bytes, json_response, send_response
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import Scope

Asked = Callable[[Question], Awaitable[None]]

_asked: ContextVar[Asked | None] = ContextVar("toolkeep_asked", default=None)


async def defer_to_inbox(question: Question) -> Answer | None:
    """Tell the caller that approval is pending; over MCP, as `ask_client` does."""
    tell = _asked.get()
    if tell is None:
        return await ask_client(question)
    await tell(question)
    return None


class CallBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked for; options are only ever stricter than the definition."""

    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    conversation: str = ""
    session: str = ""
    correlation_id: str = ""
    response: str = ""
    """The model's response that the call is part of: calls with the same one are asked about at once."""
    timeout_s: float | None = None
    max_output_bytes: int | None = None
    confirm: bool = False
    fresh: bool = False


class RawCall(CallBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As `CallBody`, with the arguments as they came: nobody reads them before the door of validation."""

    arguments: msgspec.Raw = msgspec.Raw(b"{}")  # type: ignore[assignment]  # the same JSON, not parsed


async def call_tool(
    keep: Keep,
    caller: Caller,
    name: str,
    body: RawCall,
    *,
    idempotency_key: str = "",
    trace_id: str = "",
    asked: Asked | None = None,
    on_progress: Progress | None = None,
    on_output: Output | None = None,
) -> ToolResult:
    """Call a tool as the caller's agent; `asked` is called when the call needs approval."""
    token = _asked.set(asked)
    try:
        return await keep.call(
            name,
            bytes(body.arguments),
            agent=caller.agent,
            conversation=body.conversation,
            session=body.session,
            caller=state_owner(caller, body.session),
            correlation_id=body.correlation_id or trace_id,
            response=body.response,
            timeout_s=body.timeout_s,
            max_output_bytes=body.max_output_bytes,
            confirm=body.confirm,
            fresh=body.fresh,
            idempotency_key=idempotency_key,
            forwarded=True,
            on_progress=on_progress,
            on_output=on_output,
        )
    finally:
        _asked.reset(token)


async def submit_result(calls: RunningCalls, caller: Caller, call_id: str, value: Any) -> ToolResult:
    """Submit the result of a call that the client executes itself."""
    # Only a host that is trusted with sessions says what a service made, as it says what the user said.
    forwarded = not caller.has_scope(Scope.SESSION)
    return await calls.submit(caller.agent, call_id, value, forwarded=forwarded)


class ProgressView(msgspec.Struct, frozen=True, kw_only=True):
    """How far a tool has come."""

    progress: float
    total: float | None
    message: str


class OutputView(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of what a tool gives; the result has all of them."""

    piece: Any


class Exchange:
    """The response to one call while the call runs."""

    def __init__(self, request: Request, calls: RunningCalls, owner: str) -> None:
        self._request = request
        self._owner = owner
        self._calls = calls
        self._wants_events = request.wants_events
        self._reply = Reply(request.send)
        self._task = asyncio.current_task()
        self.open_call: OpenCall | None = None
        self._tell: Callable[[bytes], None] | None = None
        if self._wants_events:
            self._tell = from_any_thread(lambda frame: self._reply.emit(frame, b"progress"))
        calls.watch.add(self)

    def look(self) -> None:
        """Start to watch for a disconnect."""
        if self.open_call is None and self._task is not None:
            self._reply.watch(self._request.receive, self._task)

    @property
    def on_progress(self) -> Progress | None:
        """Progress callback; None if the client accepts no events."""
        return None if self._tell is None else self._progress

    def _progress(self, progress: float, total: float | None, message: str) -> None:
        if self._tell is not None:
            self._tell(json_bytes(ProgressView(progress=progress, total=total, message=message)))

    @property
    def on_output(self) -> Output | None:
        """Output callback; None if the client accepts no events."""
        return self._output if self._wants_events else None

    def _output(self, piece: Any) -> None:
        self._reply.emit(json_bytes(OutputView(piece=piece)), b"output")

    async def asked(self, question: Question) -> None:
        """Approval is pending: tell the client, which may then disconnect."""
        if self.open_call is not None or self._reply.is_gone or self._task is None:
            return
        try:
            self.open_call = call = await self._calls.open(question, self._task, self._owner)
        except StoreUnavailable:
            return  # the client waits: no other server could tell it the outcome
        self._stop_watching()
        if self._wants_events:
            self._reply.emit(json_bytes(view_of(call)), b"pending")
        else:
            await send_response(self._request.send, pending(call))

    async def finish(self, result: ToolResult) -> Response | None:
        """The response with the result; None if the response was sent already."""
        self._stop_watching()
        if self.open_call is not None:
            await self._calls.end(self.open_call, result)
            if not self._wants_events:
                return None
        said = told(result)
        if self._wants_events and (self._reply.is_stream or said.status == 200):
            event = b"result" if said.status < 400 else b"problem"
            await self._reply.finish_stream(said.body, event)
            return None
        return said

    async def break_off(self, said: Response) -> bool:
        """The call was cancelled; returns whether the client has already got its response."""
        self._stop_watching()
        if self.open_call is not None:
            await self._calls.end(self.open_call, None)
        if self._reply.is_stream and not self._reply.is_gone:
            await self._reply.finish_stream(said.body, b"problem")
        return self._reply.is_gone or self._reply.is_stream or self.open_call is not None

    def _stop_watching(self) -> None:
        self._calls.watch.discard(self)
        self._reply.stop_watching()


def told(result: ToolResult) -> Response:
    """A result as a response."""
    if result.error is not None:
        return problem(of_result(result, result.error))
    if result.status == "pending":
        place = (b"location", f"/v1/calls/{result.call_id}".encode())
        return json_response(result.to_dict(), 202, [place])
    return json_response(result.to_dict())


def ended(result: ToolResult) -> Response:
    """How a call ended that was answered with 202; it is final, so no status says "try again"."""
    if result.error is None:
        return told(result)
    data = of_result(result, result.error)
    return problem(data | {"status": 500} if data["status"] in TRY_AGAIN else data)


def pending(call: OpenCall) -> Response:
    """202 with the URL to poll."""
    place = (b"location", f"/v1/calls/{call.id}".encode())
    return json_response(view_of(call), 202, [place, (b"retry-after", b"1")])


_CUT_SHORT: Final = "The server stopped while the call was running; the log says what is known about it."
_CANCELLED: Final = document(
    Code.CANCELLED, 503, "The call was cancelled; the log says what is known about it."
)
_decoder: Final = msgspec.json.Decoder(RawCall)


async def _call(service: Service, request: Request) -> Response | None:
    if service.health.is_stopping:
        raise RequestRefused(Code.NOT_SERVING, "the server is shutting down", hint="try again later")
    body = read_raw(await request.body(), _decoder)
    key = request.header("Idempotency-Key")
    if service.has_traces:
        from toolkeep.server.http.trace_context import continue_trace

        with continue_trace(request):
            return await _made(service, request, body, key)
    return await _made(service, request, body, key)


async def _made(service: Service, request: Request, body: RawCall, key: str) -> Response | None:
    exchange = Exchange(request, service.calls, state_owner(request.caller, body.session))
    with service.calls.counted():
        try:
            result = await call_tool(
                service.keep,
                request.caller,
                request.names["name"],
                body,
                idempotency_key=key,
                trace_id=request.trace_id,
                asked=exchange.asked,
                on_progress=exchange.on_progress,
                on_output=exchange.on_output,
            )
        except asyncio.CancelledError:
            is_ending = service.health.is_stopping
            said = problem(document(Code.OUTCOME_UNKNOWN, 503, _CUT_SHORT) if is_ending else _CANCELLED)
            if await exchange.break_off(said):
                return None
            if not is_ending:
                raise
            return said
    if result.status == "pending":
        await service.calls.await_submission(result)
    return await exchange.finish(result)


async def _show_call(service: Service, request: Request) -> Response:
    call = await service.calls.find(request.caller, request.names["id"])
    call = await service.calls.wait(request.caller, call, request.query["wait"])
    # A trusted host knows in which session it shows the result; any other caller has one of its own.
    if call.result is not None and call.owner != ANY_SESSION and not request.caller.has_scope(Scope.SESSION):
        await asyncio.to_thread(note_shown, service.keep, request.caller, call.tool)
    return pending(call) if call.result is None else ended(call.result)


async def _cancel_call(service: Service, request: Request) -> Response:
    return json_response(view_of(await service.calls.cancel(request.caller, request.names["id"])), 202)


class SubmitBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the client's own execution of a call gave."""

    value: Any


async def _submit(service: Service, request: Request) -> Response:
    body = await request.read(SubmitBody)
    return told(await submit_result(service.calls, request.caller, request.names["id"], body.value))


class ResultView(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a call that succeeded, or that its client executes."""

    status: str
    tool: str
    call_id: str
    agent: str
    value: Any
    """Its view, where views are typed."""
    hash: str
    leaf: int | None
    correlation_id: str


ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/tools/{name}:call",
        name="callTool",
        about="Call a tool as the token's agent. Progress comes as events to `Accept: text/event-stream`.",
        handler=_call,
        is_long=True,
        scopes=(Scope.CALL,),
        tag="calls",
        parameters=(NAME, KEY),
        body=CallBody,
        gives={
            200: ResponseSpec(about="The tool ran.", kind=ResultView),
            202: ResponseSpec(
                about="The call waits for approval, or for its client to execute it.",
                headers=(("Location", "Where to poll for its outcome."),),
            ),
        },
        problems=(404, 409, 413, 415, 422, 500, 501, 502, 504),
    ),
    Route(
        method="GET",
        path="/v1/calls/{id}",
        name="showCall",
        about="The outcome of a call that was answered with 202.",
        handler=_show_call,
        is_long=True,
        scopes=(Scope.CALL,),
        tag="calls",
        parameters=(
            ID,
            Parameter(
                name="wait",
                kind="integer",
                about="Seconds to wait for the outcome.",
                default=0,
                minimum=0,
                maximum=POLL_SECONDS,
            ),
        ),
        gives={
            200: ResponseSpec(about="It succeeded.", kind=ResultView),
            202: ResponseSpec(about="It still waits.", kind=CallView),
        },
        problems=(404, 409, 422, 500, 501, 502, 504),
    ),
    Route(
        method="POST",
        path="/v1/calls/{id}:cancel",
        name="cancelCall",
        about="Cancel a waiting call.",
        handler=_cancel_call,
        scopes=(Scope.CALL,),
        tag="calls",
        parameters=(ID,),
        gives={202: ResponseSpec(about="It will end.", kind=CallView)},
        problems=(404,),
    ),
    Route(
        method="POST",
        path="/v1/calls/{id}:submit",
        name="submitResult",
        about="Submit the result of a client-executed call.",
        handler=_submit,
        scopes=(Scope.CALL,),
        tag="calls",
        parameters=(ID,),
        body=SubmitBody,
        gives={200: ResponseSpec(about="The result was accepted and recorded.", kind=ResultView)},
        problems=(404, 409, 413, 415, 422, 502),
    ),
)
