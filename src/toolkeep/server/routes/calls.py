"""Routes of calls: make one, see what became of it."""

import asyncio
from typing import Any, Final

import msgspec

from toolkeep.errors import Code
from toolkeep.limits import POLL_SECONDS
from toolkeep.server import calls
from toolkeep.server.answers import Answer, answer
from toolkeep.server.problems import RequestRefused, document, problem
from toolkeep.server.request import Parameter, Request
from toolkeep.server.routes.common import ID, KEY, NAME
from toolkeep.server.routes.raw import read_raw
from toolkeep.server.routing import Given, Route
from toolkeep.server.service import Service
from toolkeep.server.stream import Exchange, pending, told
from toolkeep.tokens import Scope

_CUT_SHORT: Final = "The server ended while the call was under way; the log says what is known of it."
_CANCELLED: Final = document(Code.CANCELLED, 503, "The call was given up; the log says what is known of it.")
_decoder: Final = msgspec.json.Decoder(calls.RawCall)


async def _call(service: Service, request: Request) -> Answer | None:
    if service.health.is_stopping:
        raise RequestRefused(Code.NOT_SERVING, "the server is about to end", hint="call another, or later")
    body = read_raw(await request.body(), _decoder)
    key = request.header("Idempotency-Key")
    if service.has_traces:
        from toolkeep.server.tracing import going_on

        with going_on(request):
            return await _made(service, request, body, key)
    return await _made(service, request, body, key)


async def _made(service: Service, request: Request, body: calls.RawCall, key: str) -> Answer | None:
    exchange = Exchange(request, service.calls)
    with service.calls.counted():
        try:
            result = await calls.call_tool(
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
    return await exchange.finish(result)


async def _show_call(service: Service, request: Request) -> Answer:
    call = service.calls.find(request.caller, request.names["id"])
    await calls.wait_for(call, request.query["wait"])
    return pending(call) if call.result is None else told(call.result)


async def _cancel_call(service: Service, request: Request) -> Answer:
    return answer(calls.cancel_call(service.calls, request.caller, request.names["id"]), 202)


class SubmitBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the client's own execution of a call gave."""

    value: Any


async def _submit(service: Service, request: Request) -> Answer:
    body = await request.read(SubmitBody)
    return told(await calls.submit_result(service.keep, request.caller, request.names["id"], body.value))


class ResultView(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a call that went well, or that its client executes."""

    status: str
    tool: str
    call_id: str
    agent: str
    value: Any
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
        body=calls.CallBody,
        gives={
            200: Given(about="The tool ran.", kind=ResultView),
            202: Given(
                about="The call waits for a person, or for its client to execute it.",
                headers=(("Location", "Where to ask what became of it."),),
            ),
        },
        problems=(404, 409, 413, 415, 422, 500, 501, 502, 504),
    ),
    Route(
        method="GET",
        path="/v1/calls/{id}",
        name="showCall",
        about="What became of a call that was answered with 202.",
        handler=_show_call,
        is_long=True,
        scopes=(Scope.CALL,),
        tag="calls",
        parameters=(
            ID,
            Parameter(
                name="wait",
                kind="integer",
                about="How many seconds to wait for its end.",
                default=0,
                minimum=0,
                maximum=POLL_SECONDS,
            ),
        ),
        gives={
            200: Given(about="It went well.", kind=ResultView),
            202: Given(about="It still waits.", kind=calls.CallView),
        },
        problems=(404, 409, 422, 500, 501, 502, 504),
    ),
    Route(
        method="POST",
        path="/v1/calls/{id}:cancel",
        name="cancelCall",
        about="Give up a call that waits.",
        handler=_cancel_call,
        scopes=(Scope.CALL,),
        tag="calls",
        parameters=(ID,),
        gives={202: Given(about="It will end.", kind=calls.CallView)},
        problems=(404,),
    ),
    Route(
        method="POST",
        path="/v1/calls/{id}:submit",
        name="submitResult",
        about="The client's own result of a call that it executes.",
        handler=_submit,
        scopes=(Scope.CALL,),
        tag="calls",
        parameters=(ID,),
        body=SubmitBody,
        gives={200: Given(about="It fits, and is recorded.", kind=ResultView)},
        problems=(404, 409, 413, 415, 422, 502),
    ),
)
