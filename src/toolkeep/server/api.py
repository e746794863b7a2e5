"""The table of routes: how a request becomes the arguments of one action, and its outcome an answer.

Actions are plain functions in the modules beside this one; nothing is decided here.
"""

from typing import Any, Final, get_args

import jiter
import msgspec

from toolkeep.calls import Refusal
from toolkeep.definitions.tool import SourceKind
from toolkeep.definitions.vocabulary import Category, Danger, ToolState
from toolkeep.errors import Code
from toolkeep.limits import PAGE, PAGE_MOST, POLL_SECONDS
from toolkeep.server import calls, tools
from toolkeep.server.answers import Answer, answer, tagged
from toolkeep.server.health import Readiness
from toolkeep.server.pagination import Page
from toolkeep.server.problems import RequestRefused, of_refusal, problem
from toolkeep.server.request import Parameter, Request, unfitting
from toolkeep.server.routing import Given, Route
from toolkeep.server.service import Service
from toolkeep.server.stream import Exchange, pending, told
from toolkeep.tokens import Scope

_NAME: Final = Parameter(
    name="name",
    place="path",
    about="A tool's name, or `name@version`.",
    pattern=r"[A-Za-z0-9_.@+-]+",
    longest=128,
)
_ID: Final = Parameter(
    name="id", place="path", about="An id that we gave.", pattern=r"[0-9a-f-]+", longest=64
)
_LIMIT: Final = Parameter(
    name="limit", kind="integer", about="How many at most.", default=PAGE, minimum=1, maximum=PAGE_MOST
)
_CURSOR: Final = Parameter(name="cursor", about="`next` of the page before.", longest=1024)
_NONE_MATCH: Final = Parameter(
    name="If-None-Match", place="header", about="The tag of what the client has.", longest=1024
)
_MATCH: Final = Parameter(
    name="If-Match", place="header", about="The tag of what is to be changed.", longest=1024, is_required=True
)
_KEY: Final = Parameter(
    name="Idempotency-Key",
    place="header",
    about="The same key never runs the same call twice.",
    longest=256,
)
_TAG: Final = (("ETag", "The tag of this answer."),)


# --- tools ---------------------------------------------------------------------------------------


async def _list_tools(service: Service, request: Request) -> Answer:
    query = request.query
    filters = tools.Filters(**{name: query[name] for name in tools.Filters.__struct_fields__})
    page = tools.list_tools(
        service.keep, request.caller, filters, limit=query["limit"], cursor=query["cursor"]
    )
    return tagged(page, request.header("If-None-Match"))


async def _show_tool(service: Service, request: Request) -> Answer:
    view = tools.show_tool(service.keep, request.caller, request.names["name"])
    return tagged(view, request.header("If-None-Match"), view.tag)


async def _list_versions(service: Service, request: Request) -> Answer:
    return answer(tools.list_versions(service.keep, request.caller, request.names["name"]))


class ValidateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call that is only checked."""

    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    conversation: str = ""


class RawValidate(ValidateBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As `ValidateBody`, with the arguments as they came."""

    arguments: msgspec.Raw = msgspec.Raw(b"{}")  # type: ignore[assignment]  # the same JSON, not parsed


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A call that fits, with defaults filled in."""

    success: bool
    tool: str
    arguments: dict[str, Any]


async def _validate(service: Service, request: Request) -> Answer:
    raw = await request.body()
    body = _read_raw(raw, _validate_decoder)
    name = request.names["name"]
    checked = tools.check_call(service.keep, request.caller, name, bytes(body.arguments), body.conversation)
    if isinstance(checked, Refusal):
        return problem(of_refusal(checked))
    return answer(checked.to_dict())


async def _enable(service: Service, request: Request) -> Answer:
    return answer(tools.switch_tool(service.keep, request.caller, request.names["name"], enabled=True))


async def _disable(service: Service, request: Request) -> Answer:
    return answer(tools.switch_tool(service.keep, request.caller, request.names["name"], enabled=False))


# --- calls ---------------------------------------------------------------------------------------

_call_decoder: Final = msgspec.json.Decoder(calls.RawCall)
_validate_decoder: Final = msgspec.json.Decoder(RawValidate)


def _read_raw(raw: bytes, decoder: "msgspec.json.Decoder[Any]") -> Any:
    """A body whose arguments are not parsed; the rest of it holds no key twice."""
    try:
        body = decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise unfitting(error) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestRefused(Code.REQUEST_INVALID, "the body is not one strict JSON value") from error
    arguments = bytes(body.arguments)
    # Most bodies hold nothing else, and then nothing can stand twice.
    if not (raw.startswith(b'{"arguments":') and len(raw) == len(arguments) + 14):
        try:
            jiter.from_json(raw.replace(arguments, b"0", 1), allow_inf_nan=False, catch_duplicate_keys=True)
        except ValueError as error:
            raise RequestRefused(Code.REQUEST_INVALID, "the body is not one strict JSON value") from error
    return body


async def _call(service: Service, request: Request) -> Answer | None:
    if service.health.is_stopping:
        raise RequestRefused(Code.NOT_SERVING, "the server is about to end", hint="call another, or later")
    body = _read_raw(await request.body(), _call_decoder)
    key = request.header("Idempotency-Key")
    if len(key) > _KEY.longest:
        raise RequestRefused(
            Code.REQUEST_INVALID, f"Idempotency-Key is longer than {_KEY.longest} characters"
        )
    exchange = Exchange(request, service.calls)
    with service.calls.counted():
        try:
            result = await calls.call_tool(
                service.keep,
                request.caller,
                request.names["name"],
                body,
                idempotency_key=key,
                asked=exchange.asked,
                on_progress=exchange.on_progress,
            )
        except BaseException:
            if exchange.broken() or exchange.open_call is not None:
                return None
            raise
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


# --- health --------------------------------------------------------------------------------------


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """That the server lives."""

    status: str


async def _healthz(service: Service, request: Request) -> Answer:  # noqa: ARG001 -- the same for everybody
    return answer(Alive(status="alive"))


async def _readyz(service: Service, request: Request) -> Answer:  # noqa: ARG001 -- the same for everybody
    readiness = await service.health.readiness()
    return answer(readiness, 200 if readiness.is_ready else 503)


# --- the table -----------------------------------------------------------------------------------


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


TOOL_ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/tools",
        name="listTools",
        about="The tools that the token's agent may know of; with admin, all.",
        handler=_list_tools,
        scopes=(Scope.TOOLS_READ,),
        tag="tools",
        parameters=(
            Parameter(name="category", about="Only these.", choices=tuple(c.value for c in Category)),
            Parameter(name="danger", about="Only these.", choices=tuple(d.value for d in Danger)),
            Parameter(name="state", about="Only these.", choices=tuple(s.value for s in ToolState)),
            Parameter(name="source", about="Only these.", choices=get_args(SourceKind)),
            Parameter(name="search", about="Words that they should fit, the best first.", longest=1024),
            _LIMIT,
            _CURSOR,
            _NONE_MATCH,
        ),
        gives={
            200: Given(about="One page.", kind=Page, headers=_TAG),
            304: Given(about="The client has it already.", headers=_TAG),
        },
    ),
    Route(
        method="GET",
        path="/v1/tools/{name}",
        name="showTool",
        about="One tool: definition without what is secret, signature, versions.",
        handler=_show_tool,
        scopes=(Scope.TOOLS_READ,),
        tag="tools",
        parameters=(_NAME, _NONE_MATCH),
        gives={
            200: Given(about="The tool.", kind=tools.ToolView, headers=_TAG),
            304: Given(about="The client has it already.", headers=_TAG),
        },
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/tools/{name}/versions",
        name="listVersions",
        about="The versions of a tool, newest first, with how each differs from the one before.",
        handler=_list_versions,
        scopes=(Scope.TOOLS_READ,),
        tag="tools",
        parameters=(_NAME,),
        gives={200: Given(about="The versions.", kind=list[tools.VersionView])},
        problems=(404,),
    ),
    Route(
        method="POST",
        path="/v1/tools/{name}:validate",
        name="validateCall",
        about="Check the arguments of a call without running it.",
        handler=_validate,
        scopes=(Scope.TOOLS_READ, Scope.CALL),
        tag="tools",
        parameters=(_NAME,),
        body=ValidateBody,
        gives={200: Given(about="The call fits.", kind=Checked)},
        problems=(404, 409, 413, 415, 422),
    ),
    Route(
        method="POST",
        path="/v1/tools/{name}:enable",
        name="enableTool",
        about="Let a tool, or one of its versions, answer again.",
        handler=_enable,
        scopes=(Scope.TOOLS_WRITE,),
        tag="tools",
        parameters=(_NAME,),
        gives={200: Given(about="The tool as it is now.", kind=tools.ToolView)},
        problems=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/tools/{name}:disable",
        name="disableTool",
        about="Keep a tool, or one of its versions, from answering.",
        handler=_disable,
        scopes=(Scope.TOOLS_WRITE,),
        tag="tools",
        parameters=(_NAME,),
        gives={200: Given(about="The tool as it is now.", kind=tools.ToolView)},
        problems=(404, 409),
    ),
)

CALL_ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/tools/{name}:call",
        name="callTool",
        about="Call a tool as the token's agent. Progress comes as events to `Accept: text/event-stream`.",
        handler=_call,
        scopes=(Scope.CALL,),
        tag="calls",
        parameters=(_NAME, _KEY),
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
        scopes=(Scope.CALL,),
        tag="calls",
        parameters=(
            _ID,
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
        parameters=(_ID,),
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
        parameters=(_ID,),
        body=SubmitBody,
        gives={200: Given(about="It fits, and is recorded.", kind=ResultView)},
        problems=(404, 409, 413, 415, 422, 502),
    ),
)

HEALTH_ROUTES: Final = (
    Route(
        method="GET",
        path="/healthz",
        name="isAlive",
        about="That the server lives. Open to everybody.",
        handler=_healthz,
        tag="health",
        gives={200: Given(about="It does.", kind=Alive)},
    ),
    Route(
        method="GET",
        path="/readyz",
        name="isReady",
        about="Whether requests should be sent here: providers are in, log and store can be written.",
        handler=_readyz,
        tag="health",
        gives={
            200: Given(about="It is ready.", kind=Readiness),
            503: Given(about="It is not.", kind=Readiness),
        },
    ),
)

ROUTES: Final = (*TOOL_ROUTES, *CALL_ROUTES, *HEALTH_ROUTES)
