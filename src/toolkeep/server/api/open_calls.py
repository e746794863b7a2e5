"""Calls that were answered with 202 before they ended: they wait for approval, and clients poll for results.

A call can be found only by the agent that made it: ids of other agents are as unknown as ids that never were.
Where servers share a database, they can be polled and cancelled through any of them.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from toolkeep.approval.question import Question
from toolkeep.calls import ToolResult
from toolkeep.errors import Code
from toolkeep.execution.idempotency import decode, encode
from toolkeep.host.clock import iso
from toolkeep.keep.keep import Keep
from toolkeep.limits import OPEN_CALL_SECONDS, OPEN_CALLS
from toolkeep.mcp_server.disconnects import DisconnectWatch
from toolkeep.mcp_server.tools_call import peers_of
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import RequestRefused, not_found

if TYPE_CHECKING:
    from toolkeep.storage.postgres.peers import Peers
    from toolkeep.storage.postgres.work_table import StoredWork


class OpenCall(msgspec.Struct, kw_only=True, eq=False):
    """A call that was answered with 202 before it ended."""

    id: str
    agent: str
    owner: str
    """To whom the state of its session belongs."""
    tool: str
    approval: str
    expires_at: float
    task: "asyncio.Task[Any] | None"
    """None for a call of another server."""
    server: str = ""
    """The other server that it is a call of."""
    result: ToolResult | None = None
    ended_at: float = 0.0
    ended: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


class _State(msgspec.Struct, frozen=True, kw_only=True):
    """What other servers know of a call."""

    owner: str
    tool: str
    approval: str
    expires_at: float
    result: bytes = b""


class _Submission(msgspec.Struct):
    """The client's result of a call that another server made."""

    agent: str
    call_id: str
    value: Any
    forwarded: bool


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

    def __init__(self, keep: Keep, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._submit = keep.submit
        self._peers = peers = peers_of(keep)
        if peers is not None:
            peers.on("cancel call", self._on_cancel)
            peers.on("submit", self._on_submit)
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

    async def open(self, question: Question, task: "asyncio.Task[Any]", owner: str) -> OpenCall:
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
        if self._peers is not None:
            self._peers.attend()
            try:
                await self._peers.work.put(_stored(call, self._peers.server))  # before the client hears of it
            except asyncio.CancelledError:
                self._peers.spawn(self._peers.work.withdraw(call.id))
                raise
        self._calls[call.id] = call
        return call

    async def end(self, call: OpenCall, result: ToolResult | None) -> None:
        """Store the result of a call."""
        call.result, call.ended_at = result, self._clock()
        call.ended.set()
        if result is None:
            self._calls.pop(call.id, None)
        if self._peers is not None:
            if result is None:
                await self._peers.withdraw(call.id)
            else:
                await self._peers.put(_stored(call, self._peers.server))

    async def find(self, caller: Caller, call_id: str) -> OpenCall:
        """A call of the caller's own agent; the same error for another agent's call and an unknown id."""
        call = self._calls.get(call_id)
        if call is None and self._peers is not None:
            call = await _find_elsewhere(self._peers, caller.agent, call_id)
        if call is None or call.agent != caller.agent:
            raise not_found("call")
        return call

    async def wait(self, caller: Caller, call: OpenCall, seconds: float) -> OpenCall:
        """Wait for the end of a call, up to `seconds`."""
        if call.task is not None or self._peers is None:
            if seconds > 0 and call.result is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(call.ended.wait(), seconds)
            return call
        until = self._clock() + seconds
        while call.result is None and (left := until - self._clock()) > 0:
            await self._peers.until_changed(call.id, left)
            call = await self.find(caller, call.id)
        return call

    async def cancel(self, caller: Caller, call_id: str) -> OpenCall:
        """Cancel a call that waits."""
        call = await self.find(caller, call_id)
        if call.task is None and call.result is None and self._peers is not None:
            if await self._peers.request(call.server, "cancel call", call.id.encode()) is None:
                raise _lost()
        else:
            _cancel(call)
        return call

    async def await_submission(self, result: ToolResult) -> None:
        """Let other servers know of a call that its client executes."""
        if self._peers is not None:
            from toolkeep.storage.postgres.work_table import StoredWork

            self._peers.attend()
            await self._peers.work.put(
                StoredWork(
                    id=result.call_id,
                    kind="submit",
                    agent=result.agent,
                    server=self._peers.server,
                    state=b"",
                    is_over=False,
                )
            )

    async def submit(self, agent: str, call_id: str, value: Any, *, forwarded: bool) -> ToolResult:
        """Submit the client's result of a call, of this server or of another."""
        result = await self._submit(call_id, value, agent=agent, forwarded=forwarded)
        if result.code is not Code.NOT_PENDING or self._peers is None:
            if self._peers is not None:
                self._peers.spawn(self._peers.work.withdraw(call_id))
            return result
        found = await self._peers.work.find(call_id, "submit", agent)
        if found is None or found.server == self._peers.server:
            return result
        data = msgspec.json.encode(_Submission(agent, call_id, value, forwarded))
        said = await self._peers.request(found.server, "submit", data)
        if not said:
            raise _lost()
        return decode(said)

    async def _on_submit(self, data: bytes, _: object) -> bytes:
        said = msgspec.json.decode(data, type=_Submission)
        result = await self.submit(said.agent, said.call_id, said.value, forwarded=said.forwarded)
        return encode(result)

    async def _on_cancel(self, data: bytes, _: object) -> bytes:
        """A client of another server cancels a call, which that server found by its agent."""
        if (call := self._calls.get(data.decode())) is not None:
            _cancel(call)
        return b""

    def withdraw(self) -> None:
        """Cancel the calls without a result: nearly all wait for approval, and none of those has run."""
        for call in list(self._calls.values()):
            _cancel(call)

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


def _cancel(call: OpenCall) -> None:
    if call.result is None and call.task is not None:
        call.task.cancel()


async def _find_elsewhere(peers: "Peers", agent: str, call_id: str) -> OpenCall | None:
    """A call of another server."""
    peers.attend()
    found = await peers.work.find(call_id, "call", agent)
    if found is not None and found.is_lost:
        # Final, also if that server was only cut off: nobody may hear of two different ends.
        await peers.work.put(msgspec.structs.replace(found, is_over=True, is_lost=False))
        found = await peers.work.find(call_id, "call", agent)
    if found is None:
        return None
    state = msgspec.msgpack.decode(found.state, type=_State)
    if found.is_over and not state.result:
        raise _lost()
    return OpenCall(
        id=call_id,
        agent=agent,
        owner=state.owner,
        tool=state.tool,
        approval=state.approval,
        expires_at=state.expires_at,
        task=None,
        server=found.server,
        result=decode(state.result) if state.result else None,
    )


def _stored(call: OpenCall, server: str) -> "StoredWork":
    from toolkeep.storage.postgres.work_table import StoredWork

    state = _State(
        owner=call.owner,
        tool=call.tool,
        approval=call.approval,
        expires_at=call.expires_at,
        result=b"" if call.result is None else encode(call.result),
    )
    return StoredWork(
        id=call.id,
        kind="call",
        agent=call.agent,
        server=server,
        state=msgspec.msgpack.encode(state),
        is_over=call.result is not None,
    )


def _lost() -> RequestRefused:
    return RequestRefused(
        Code.OUTCOME_UNKNOWN,
        "the server that made the call is gone; whether the call had an effect is unknown",
        hint="find out what it did before you call again",
    )
