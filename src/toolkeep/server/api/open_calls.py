"""Calls that were answered with 202 before they ended: they wait for approval, and clients poll for results.

A call can be found only by the agent that made it: ids of other agents are as unknown as ids that never were.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from toolkeep.approval.question import Question
from toolkeep.calls import ToolResult
from toolkeep.host.clock import iso
from toolkeep.limits import OPEN_CALL_SECONDS, OPEN_CALLS
from toolkeep.mcp_server.disconnects import DisconnectWatch
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import not_found


class OpenCall(msgspec.Struct, kw_only=True, eq=False):
    """A call that was answered with 202 before it ended."""

    id: str
    agent: str
    owner: str
    """To whom the state of its session belongs."""
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


class RunningCalls:
    """The calls of this server: how many run, and those that clients may poll."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: dict[str, OpenCall] = {}
        self.watch = DisconnectWatch()
        self.in_flight = 0

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count a call in flight, so that shutdown can wait for it."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    def open(self, question: Question, task: "asyncio.Task[Any]", owner: str) -> OpenCall:
        """Register a call that waits for approval."""
        self._forget()
        call = OpenCall(
            id=question.call_id,
            agent=question.agent,
            owner=owner,
            tool=question.tool,
            approval=question.id,
            expires_at=question.expires_at,
            task=task,
        )
        self._calls[call.id] = call
        return call

    def end(self, call: OpenCall, result: ToolResult | None) -> None:
        """Store the result of a call."""
        call.result, call.ended_at = result, self._clock()
        call.ended.set()
        if result is None:
            self._calls.pop(call.id, None)

    def find(self, caller: Caller, call_id: str) -> OpenCall:
        """A call of the caller's own agent; the same error for another agent's call and an unknown id."""
        call = self._calls.get(call_id)
        if call is None or call.agent != caller.agent:
            raise not_found("call")
        return call

    def withdraw(self) -> None:
        """Cancel the calls without a result: nearly all wait for approval, and none of those has run."""
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
    """The state of a call."""
    return CallView(
        status="pending" if call.result is None else "ended",
        call_id=call.id,
        tool=call.tool,
        agent=call.agent,
        approval=call.approval,
        expires_at=iso(call.expires_at),
    )


async def wait_for(call: OpenCall, seconds: float) -> None:
    """Wait for the end of a call, up to `seconds`."""
    if seconds > 0 and call.result is None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(call.ended.wait(), seconds)


def cancel_call(calls: RunningCalls, caller: Caller, call_id: str) -> CallView:
    """Cancel a call that waits."""
    call = calls.find(caller, call_id)
    if call.result is None:
        call.task.cancel()
    return view_of(call)
