"""Calls over HTTP: made as the token's agent; one that waits for a person is answered at once and goes on.

`ask_elsewhere` is the approver of a keep that is served. It never says yes: it tells whoever made the call
that a person is asked, and people answer through `/v1/approvals`, the page or `toolkeep approve`.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any, Literal

import msgspec

from toolkeep.approval.question import Answer, Question
from toolkeep.calls import Output, Progress, ToolResult
from toolkeep.clock import iso
from toolkeep.keep import Keep
from toolkeep.limits import OPEN_CALL_SECONDS, OPEN_CALLS
from toolkeep.mcp.approvals import ask_client
from toolkeep.mcp.watch import Watch
from toolkeep.server.auth import Caller
from toolkeep.server.problems import nothing_there

Asked = Callable[[Question], Awaitable[None]]

_asked: ContextVar[Asked | None] = ContextVar("toolkeep_asked", default=None)


async def ask_elsewhere(question: Question) -> Answer | None:
    """Tell whoever made the call that a person is asked; over MCP as ever."""
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
    """Call a tool as the caller's agent; `asked` hears of a person who is asked."""
    token = _asked.set(asked)
    try:
        return await keep.call(
            name,
            bytes(body.arguments),
            agent=caller.agent,
            conversation=body.conversation,
            session=body.session,
            correlation_id=body.correlation_id or trace_id,
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


class OpenCall(msgspec.Struct, kw_only=True, eq=False):
    """A call that was answered before it ended."""

    id: str
    agent: str
    tool: str
    approval: str
    expires_at: float
    task: "asyncio.Task[Any]"
    result: ToolResult | None = None
    ended_at: float = 0.0
    ended: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


class CallView(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call stands that was answered with 202."""

    status: Literal["pending", "ended"]
    call_id: str
    tool: str
    agent: str
    approval: str
    """The id of the question to a person."""
    expires_at: str
    """When nobody waits for the answer any more."""


class OpenCalls:
    """The calls of this server that can be asked about."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: dict[str, OpenCall] = {}
        self.watch = Watch()
        self.in_flight = 0

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Around every call, so that the end of the server can wait for them."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    def open(self, question: Question, task: "asyncio.Task[Any]") -> OpenCall:
        """Remember a call that waits for a person."""
        self._forget()
        call = OpenCall(
            id=question.call_id,
            agent=question.agent,
            tool=question.tool,
            approval=question.id,
            expires_at=question.expires_at,
            task=task,
        )
        self._calls[call.id] = call
        return call

    def end(self, call: OpenCall, result: ToolResult | None) -> None:
        """What became of it."""
        call.result, call.ended_at = result, self._clock()
        call.ended.set()
        if result is None:
            self._calls.pop(call.id, None)

    def find(self, caller: Caller, call_id: str) -> OpenCall:
        """A call of the caller's own agent; raises for any other."""
        call = self._calls.get(call_id)
        if call is None or call.agent != caller.agent:
            raise nothing_there("call")
        return call

    def withdraw(self) -> None:
        """End those that only wait for a person: nothing was run."""
        for call in list(self._calls.values()):
            if call.result is None:
                call.task.cancel()

    def _forget(self) -> None:
        now = self._clock()
        over = [
            call.id
            for call in self._calls.values()
            if call.result is not None and now - call.ended_at > OPEN_CALL_SECONDS
        ]
        ended = [call.id for call in self._calls.values() if call.result is not None and call.id not in over]
        for call_id in over + ended[: max(0, len(self._calls) - len(over) - OPEN_CALLS + 1)]:
            del self._calls[call_id]


def view_of(call: OpenCall) -> CallView:
    """Where a call stands."""
    return CallView(
        status="pending" if call.result is None else "ended",
        call_id=call.id,
        tool=call.tool,
        agent=call.agent,
        approval=call.approval,
        expires_at=iso(call.expires_at),
    )


async def wait_for(call: OpenCall, seconds: float) -> None:
    """Wait for the end of a call, so long at most."""
    if seconds > 0 and call.result is None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(call.ended.wait(), seconds)


def cancel_call(calls: OpenCalls, caller: Caller, call_id: str) -> CallView:
    """Give up a call that waits."""
    call = calls.find(caller, call_id)
    if call.result is None:
        call.task.cancel()
    return view_of(call)


async def submit_result(keep: Keep, caller: Caller, call_id: str, value: Any) -> ToolResult:
    """The client's own result of a call that it executes."""
    return await keep.submit(call_id, value, agent=caller.agent)
