"""Who may start now: rate and concurrency for each agent and each tool, and a queue that ends (EXE-7).

A call beyond the concurrency waits its turn; a call beyond the queue, or too soon after others, is answered
at once. Slots belong to no event loop: loops and threads may share a keep.
"""

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

import msgspec

from toolkeep.allowance import Allowance
from toolkeep.calls import Refusal, ToolCall
from toolkeep.errors import Code
from toolkeep.limits import CallLimits
from toolkeep.refusals import refuse

_REMEMBERED = 10_000
"""Gates that stand idle are forgotten beyond this many."""

_Key = tuple[str, str]
Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class _Gate:
    """Slots of one agent or one tool, with the calls that wait for one, and how fast they may come."""

    __slots__ = ("allowance", "aside", "running", "waiting")

    def __init__(self, allowance: Allowance) -> None:
        self.allowance = allowance
        self.running = 0
        self.aside = 0
        """Calls that wait for a person, and will want to run."""
        self.waiting: deque[Waiter] = deque()

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.waiting and not self.aside


class Slot(msgspec.Struct, eq=False):
    """A place among the running calls, given back when everyone who holds it has let go."""

    _admission: "Admission"
    _gates: tuple[_Gate, ...]
    _holders: int = 1
    _pauses: int = 0
    _paused_at: float = 0.0
    _paused_s: float = 0.0

    def hold(self) -> None:
        """Hold it once more: something of the call goes on after its answer."""
        with self._admission.lock:
            self._holders += 1

    @contextlib.asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Around the wait for a person: others may run the tool meanwhile. The agent's place stays taken."""
        agent, tool = self._gates
        self._gates = (agent,)
        self._admission.step_aside(tool)
        try:
            yield
        except BaseException:
            self._admission.stay_out(tool)
            raise
        await self._admission.step_in(tool)
        self._gates = agent, tool

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Around what a person takes while the call runs: its place stays taken, its time stands still."""
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
        """How long the call waited for people since it began to run."""
        now = time.monotonic() - self._paused_at if self._pauses else 0.0
        return self._paused_s + now

    @property
    def is_shared(self) -> bool:
        """Whether something else than the call itself holds it."""
        return self._holders > 1

    def release(self) -> None:
        """Let go once; the last one lets the next call in."""
        with self._admission.lock:
            self._holders -= 1
            if self._holders == 0:
                self._admission.leave(self._gates)


class Admission:
    """Lets calls in, agent by agent and tool by tool."""

    def __init__(self, limits: CallLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self.lock = threading.Lock()
        """Held by whoever counts: who enters, who leaves, and who holds a slot."""
        self._gates: OrderedDict[_Key, _Gate] = OrderedDict()
        self._admitted = 0

    async def admit(self, request: ToolCall, tool: str) -> Slot | Refusal:
        """A slot, at once or after waiting; or why there is none."""
        wanted = ("agent", request.agent), ("tool", tool)
        if (slot := self._at_once(wanted)) is not None:
            return slot
        entered: list[_Gate] = []
        try:
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
        """A slot where nothing stands against it: most calls, in a third of the time."""
        limits = self._limits
        if limits.calls_per_second:
            return None
        by_agent, by_tool = wanted
        with self.lock:
            agent = self._gate(by_agent)
            if agent.running >= limits.agent_concurrency:
                return None
            agent.running += 1  # before the other gate is made, which may need room for itself
            tool = self._gate(by_tool)
            if tool.running >= limits.tool_concurrency:
                agent.running -= 1
                return None
            tool.running += 1
            self._admitted += 1
        return Slot(self, (agent, tool))

    @property
    def _concurrency(self) -> tuple[int, int]:
        return self._limits.agent_concurrency, self._limits.tool_concurrency

    def leave(self, gates: Iterable[_Gate]) -> None:
        """A call that was let in is over; called with the lock held."""
        self._admitted -= 1
        self._release(gates)

    def release(self, gates: Iterable[_Gate]) -> None:
        """Give back what a call entered that is not let in after all."""
        with self.lock:
            self._release(gates)

    def _release(self, gates: Iterable[_Gate]) -> None:
        """Whoever waits longest gets it; called with the lock held."""
        for gate in gates:
            gate.running -= 1
            if gate.waiting:
                self._wake(gate)

    @property
    def running(self) -> int:
        """Calls that were let in and are not over."""
        return self._admitted

    def has_one(self) -> bool:
        """Whether one call runs now, and no other."""
        return self._admitted == 1

    def _gate(self, key: _Key) -> _Gate:
        """The gate of an agent or a tool; called with the lock held."""
        return self._gates.get(key) or self._new_gate(key)

    def _new_gate(self, key: _Key) -> _Gate:
        self._forget_idle()
        limits = self._limits
        gate = self._gates[key] = _Gate(Allowance(limits.calls_per_second, limits.burst, self._clock))
        return gate

    def _forget_idle(self) -> None:
        while len(self._gates) >= _REMEMBERED:
            key = next((key for key, gate in self._gates.items() if gate.is_idle), None)
            if key is None:
                return
            del self._gates[key]

    async def _enter(self, key: _Key, concurrent: int, request: ToolCall) -> _Gate | Refusal:
        with self.lock:
            gate = self._gate(key)
            if not gate.allowance.take():
                return refuse(
                    request,
                    Code.RATE_LIMITED,
                    "Too many calls in a short time",
                    "Wait a moment, then try again.",
                )
            if gate.running < concurrent:
                gate.running += 1
                return gate
            if len(gate.waiting) >= self._limits.queue:
                return refuse(
                    request, Code.QUEUE_FULL, "Too many calls are waiting already", "Try again later."
                )
            waiter = _queued(gate)
        await self._turn(gate, waiter)
        return gate

    def step_aside(self, gate: _Gate) -> None:
        """Give a place to others for a while."""
        with self.lock:
            gate.aside += 1
            self._release((gate,))

    def stay_out(self, gate: _Gate) -> None:
        """It does not come back."""
        with self.lock:
            gate.aside -= 1

    async def step_in(self, gate: _Gate) -> None:
        """Take a place again; it was let in before, so neither rate nor queue stand against it."""
        with self.lock:
            gate.aside -= 1
            if gate.running < self._limits.tool_concurrency:
                gate.running += 1
                return
            waiter = _queued(gate)
        await self._turn(gate, waiter)

    async def _turn(self, gate: _Gate, waiter: Waiter) -> None:
        try:
            await waiter[1]
        except asyncio.CancelledError:
            self._give_up(gate, *waiter)
            raise

    def _wake(self, gate: _Gate) -> None:
        """Hand the free slot to the first waiter whose loop still lives; called with the lock held."""
        while gate.waiting:
            loop, turn = gate.waiting.popleft()
            gate.running += 1
            try:
                loop.call_soon_threadsafe(_resolve, turn, self, gate)
            except RuntimeError:  # its loop is closed
                gate.running -= 1
                continue
            return

    def _give_up(self, gate: _Gate, loop: asyncio.AbstractEventLoop, turn: "asyncio.Future[None]") -> None:
        """A waiting call was cancelled: out of the queue, or the slot that it was given goes on."""
        with self.lock:
            if (loop, turn) in gate.waiting:
                gate.waiting.remove((loop, turn))
                return
        if turn.done() and not turn.cancelled():
            self.release((gate,))


def _queued(gate: _Gate) -> Waiter:
    """A place in the queue of a gate; called with the lock held."""
    loop = asyncio.get_running_loop()
    waiter = loop, loop.create_future()
    gate.waiting.append(waiter)
    return waiter


def _resolve(turn: "asyncio.Future[None]", admission: Admission, gate: _Gate) -> None:
    if turn.done():  # cancelled in the meantime: the slot goes on
        admission.release((gate,))
    else:
        turn.set_result(None)
