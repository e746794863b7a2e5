"""Admission control (EXE-7): rate limit (token bucket) and concurrency, per agent and per tool.

A call beyond the concurrency limit waits in a bounded queue; beyond the queue or the rate it is refused at
once. Slots belong to no event loop: loops and threads may share a keep.
"""

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

import msgspec

from toolkeep.calls import RanOn, Refusal, ResourceUse, ToolCall, refuse
from toolkeep.errors import Code
from toolkeep.host.token_bucket import TokenBucket
from toolkeep.limits import CallLimits

_REMEMBERED = 10_000
"""Idle gates are dropped beyond this many."""

_Key = tuple[str, str]
Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class _Gate:
    """Concurrency slots, waiting queue and token bucket of one agent or one tool."""

    __slots__ = ("approval_waits", "bucket", "running", "waiting")

    def __init__(self, bucket: TokenBucket) -> None:
        self.bucket = bucket
        self.running = 0
        self.approval_waits = 0
        """Calls that wait for approval and will want to run."""
        self.waiting: deque[Waiter] = deque()

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.waiting and not self.approval_waits


class Slot(msgspec.Struct, eq=False):
    """A concurrency slot, released when every holder has released it.

    A thread that cannot be stopped holds it too: otherwise timed-out calls would pile up beyond the limit.
    """

    _admission: "Admission"
    _gates: tuple[_Gate, ...]
    _holders: int = 1
    _pauses: int = 0
    _paused_at: float = 0.0
    _paused_s: float = 0.0
    wall_ms: float | None = None
    """How long the tool ran; None if it was not run, or not to its end."""
    ran_on: RanOn | None = None
    """The worker elsewhere that ran the call, if one did."""
    _cpu_ms: float | None = None
    _peak_memory_bytes: int | None = None

    def note_use(self, cpu_ms: float, peak_memory_bytes: int | None = None) -> None:
        """Take what the run of the call took."""
        self._cpu_ms, self._peak_memory_bytes = cpu_ms, peak_memory_bytes

    @property
    def resource_use(self) -> ResourceUse | None:
        """What the run of the call took; None if there was none."""
        if self.wall_ms is None:
            return None
        return ResourceUse(
            wall_ms=self.wall_ms, cpu_ms=self._cpu_ms, peak_memory_bytes=self._peak_memory_bytes
        )

    def hold(self) -> None:
        """Add a holder: part of the call outlives its answer."""
        with self._admission.lock:
            self._holders += 1

    @contextlib.asynccontextmanager
    async def released_for_approval(self) -> AsyncIterator[None]:
        """While waiting for approval: release the tool's slot to other calls, keep the agent's.

        Otherwise one agent's unanswered approvals would block a tool for everybody.
        """
        agent, tool = self._gates
        self._gates = (agent,)
        self._admission.release_temporarily(tool)
        try:
            yield
        except BaseException:
            self._admission.drop_waiting(tool)
            raise
        await self._admission.reacquire(tool)
        self._gates = agent, tool

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """While a person answers an elicitation: the slot stays taken, the deadline is extended."""
        if not self._pauses:
            self._paused_at = time.monotonic()
        self._pauses += 1
        try:
            yield
        finally:
            self._paused_s, self._paused_at = self.paused_s, time.monotonic()
            self._pauses -= 1

    @property
    def paused_s(self) -> float:
        """Time that the call has waited for people since it started."""
        now = time.monotonic() - self._paused_at if self._pauses else 0.0
        return self._paused_s + now

    @property
    def is_shared(self) -> bool:
        """Whether somebody besides the call itself holds it."""
        return self._holders > 1

    def release(self) -> None:
        """Drop one holder; the last one admits the next call."""
        with self._admission.lock:
            self._holders -= 1
            if self._holders == 0:
                self._admission.leave(self._gates)


class Admission:
    """Admits calls, per agent and per tool."""

    def __init__(self, limits: CallLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self.lock = threading.Lock()
        """Guards all counters: entering, leaving, holders of slots."""
        self._gates: OrderedDict[_Key, _Gate] = OrderedDict()
        self._admitted = 0
        self.servers = 1
        """How many have a part of the limits."""
        self._agent_concurrency = limits.agent_concurrency

    def divide(self, servers: int) -> None:
        """Take an equal part of the rates, and of the concurrency of each agent."""
        with self.lock:
            if servers == self.servers:
                return
            self.servers = servers
            self._agent_concurrency = max(1, self._limits.agent_concurrency // servers)
            for (kind, _), gate in self._gates.items():
                while kind == "agent" and gate.waiting and gate.running < self._agent_concurrency:
                    self._wake(gate)

    async def admit(self, request: ToolCall, tool: str) -> Slot | Refusal:
        """A slot, at once or after waiting; or a refusal."""
        wanted = ("agent", request.agent), ("tool", tool)
        if (slot := self._at_once(wanted)) is not None:
            return slot
        entered: list[_Gate] = []
        try:
            # Always agent first, then tool: the same order everywhere, or two calls could wait for each
            # other.
            for key, concurrent in zip(wanted, self._concurrency, strict=True):
                gate = await self._enter(key, concurrent, request)
                if isinstance(gate, Refusal):
                    self.release(entered)
                    return gate
                entered.append(gate)
        except asyncio.CancelledError:
            self.release(entered)
            raise
        with self.lock:
            self._admitted += 1
        return Slot(self, tuple(entered))

    def _at_once(self, wanted: tuple[_Key, _Key]) -> Slot | None:
        """Fast path without contention: most calls, in a third of the time."""
        limits = self._limits
        if limits.calls_per_second:
            return None
        by_agent, by_tool = wanted
        with self.lock:
            agent = self._gate(by_agent)
            if agent.running >= self._agent_concurrency:
                return None
            agent.running += 1  # Before the other gate is created, which may evict idle gates.
            tool = self._gate(by_tool)
            if tool.running >= limits.tool_concurrency:
                agent.running -= 1
                return None
            tool.running += 1
            self._admitted += 1
        return Slot(self, (agent, tool))

    @property
    def _concurrency(self) -> tuple[int, int]:
        return self._agent_concurrency, self._limits.tool_concurrency

    def leave(self, gates: Iterable[_Gate]) -> None:
        """An admitted call is over; requires the lock."""
        self._admitted -= 1
        self._release(gates)

    def release(self, gates: Iterable[_Gate]) -> None:
        """Release gates of a call that was not admitted after all."""
        with self.lock:
            self._release(gates)

    def _release(self, gates: Iterable[_Gate]) -> None:
        """Hand the slot to the longest waiting call; requires the lock."""
        for gate in gates:
            gate.running -= 1
            if gate.waiting:
                self._wake(gate)

    @property
    def running(self) -> int:
        """Admitted calls that are not over."""
        return self._admitted

    def has_one(self) -> bool:
        """Whether exactly one call runs now."""
        return self._admitted == 1

    def _gate(self, key: _Key) -> _Gate:
        """Gate of an agent or a tool; requires the lock."""
        return self._gates.get(key) or self._new_gate(key)

    def _new_gate(self, key: _Key) -> _Gate:
        self._forget_idle()
        limits = self._limits
        gate = self._gates[key] = _Gate(TokenBucket(limits.calls_per_second, limits.burst, self._clock))
        return gate

    def _forget_idle(self) -> None:
        while len(self._gates) >= _REMEMBERED:
            # Only idle gates: dropping one in use would reset its counters.
            key = next((key for key, gate in self._gates.items() if gate.is_idle), None)
            if key is None:
                return
            del self._gates[key]

    async def _enter(self, key: _Key, concurrent: int, request: ToolCall) -> _Gate | Refusal:
        with self.lock:
            gate = self._gate(key)
            # Rate before concurrency: a flood must not fill the queue.
            if not gate.bucket.take(self.servers):
                return refuse(
                    request,
                    Code.RATE_LIMITED,
                    "Too many calls in a short time",
                    "Wait a moment, then try again.",
                )
            if gate.running < concurrent:
                gate.running += 1
                return gate
            # A bounded queue: unbounded, an agent's backlog would take memory, and every call in it time out.
            if len(gate.waiting) >= self._limits.queue:
                return refuse(
                    request, Code.QUEUE_FULL, "Too many calls are waiting already", "Try again later."
                )
            waiter = _queued(gate)
        await self._turn(gate, waiter)
        return gate

    def release_temporarily(self, gate: _Gate) -> None:
        """Release a slot temporarily."""
        with self.lock:
            gate.approval_waits += 1
            self._release((gate,))

    def drop_waiting(self, gate: _Gate) -> None:
        """The call will not come back."""
        with self.lock:
            gate.approval_waits -= 1

    async def reacquire(self, gate: _Gate) -> None:
        """Take a slot again; it was admitted before, so neither rate limit nor queue limit applies."""
        with self.lock:
            gate.approval_waits -= 1
            if gate.running < self._limits.tool_concurrency:
                gate.running += 1
                return
            waiter = _queued(gate)
        await self._turn(gate, waiter)

    async def _turn(self, gate: _Gate, waiter: Waiter) -> None:
        try:
            await waiter[1]
        except asyncio.CancelledError:
            self._leave_queue(gate, *waiter)
            raise

    def _wake(self, gate: _Gate) -> None:
        """Hand the free slot to the first waiter whose loop is alive; requires the lock."""
        while gate.waiting:
            loop, turn = gate.waiting.popleft()
            gate.running += 1
            try:
                # The slot is counted as taken before the waiter wakes, so nobody can overtake it.
                loop.call_soon_threadsafe(_resolve, turn, self, gate)
            except RuntimeError:  # The loop is closed.
                gate.running -= 1
                continue
            return

    def _leave_queue(
        self, gate: _Gate, loop: asyncio.AbstractEventLoop, turn: "asyncio.Future[None]"
    ) -> None:
        """A waiting call was cancelled: leave the queue, or pass on the slot that it was given."""
        with self.lock:
            if (loop, turn) in gate.waiting:
                gate.waiting.remove((loop, turn))
                return
        if turn.done() and not turn.cancelled():
            self.release((gate,))


def _queued(gate: _Gate) -> Waiter:
    """Join the queue of a gate; requires the lock."""
    loop = asyncio.get_running_loop()
    waiter = loop, loop.create_future()
    gate.waiting.append(waiter)
    return waiter


def _resolve(turn: "asyncio.Future[None]", admission: Admission, gate: _Gate) -> None:
    if turn.done():  # Cancelled meanwhile: pass the slot on.
        admission.release((gate,))
    else:
        turn.set_result(None)
