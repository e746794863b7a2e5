"""Pool of persistent processes: found by key, ended when idle or revoked, bounded in number.

One process per key, and a key contains everything that separates two: definition, agent, grant, environment.
So what a program remembers of one agent never reaches another. Each event loop has its own. A failed call
only ends its process; the next call starts another.

A process runs with its grant while no call uses it. It is therefore ended as soon as it could not be called
any more (SBX-2): `on_event` gets events when a tool is disabled or removed, an agent's grant or the policies
change, or a person denies an approval. Where configured, it is suspended between calls: a call is over only
when no process of the program runs, and a program that cannot be suspended is killed.
"""

import asyncio
import contextlib
import logging
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import msgspec

from toolkeep.events import (
    AgentDeclared,
    ApprovalDecided,
    Bus,
    Event,
    PoliciesChanged,
    ToolQuarantined,
    ToolSwitched,
    ToolUnregistered,
)
from toolkeep.execution.persistent.spec import IdlePolicy
from toolkeep.limits import PERSISTENT_PROCESSES
from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.worker_pool import Pool

log = logging.getLogger("toolkeep.execution")


class LiveProcess(Protocol):
    """A persistent process, or a client that talks to one."""

    @property
    def is_alive(self) -> bool:
        """Whether it can still be talked to."""

    def set_active(self, *, is_active: bool) -> None:
        """Say whether it handles a call now, or is idle."""

    async def suspend(self) -> None:
        """Stop all its processes; SandboxBroken if it cannot be shown that none runs."""

    async def resume(self) -> None:
        """Continue its processes if stopped; SandboxBroken if one of them ran meanwhile."""

    async def close(self) -> None:
        """Kill it."""

    def discard(self) -> None:
        """Release it when no event loop is left."""


L = TypeVar("L", bound=LiveProcess)
Start = Callable[[Pool], Awaitable[L]]


class User(NamedTuple):
    """Tool and agent of a call: an upstream server answers several tools of one agent."""

    tool: str
    agent: str


Matches = Callable[[User], bool]


class ProcessStatus(NamedTuple):
    """How a process is listed."""

    name: str
    """Of its tool, or of its upstream."""
    isolation: str
    grant: tuple[str, ...]


class PersistentProgram(msgspec.Struct, frozen=True, kw_only=True):
    """Status of a persistent process (SBX-2)."""

    name: str
    """Of its tool, or of its upstream."""
    agent: str
    isolation: str
    grant: tuple[str, ...]
    """What it can access besides its own code, such as `fs.read:/srv/books`."""
    since: datetime
    state: IdlePolicy
    calls: int
    """Calls that run, or wait for their turn."""


class ProcessPool:
    """Persistent processes of one keep."""

    def __init__(self, bus: Bus, most: int = PERSISTENT_PROCESSES) -> None:
        self._bus = bus
        self._unsubscribe: Callable[[], None] | None = None
        self._most = most
        self._pool = Pool()
        self._loops: dict[asyncio.AbstractEventLoop, _LoopProcesses] = {}
        self._lock = threading.Lock()

    @contextlib.asynccontextmanager
    async def use(
        self,
        key: Hashable,
        start: Start[L],
        *,
        user: User,
        idle_s: float,
        is_shared: bool = False,
        between_calls: IdlePolicy = IdlePolicy.RUNNING,
        described: ProcessStatus | None = None,
    ) -> AsyncIterator[L]:
        """The process of this key, started if there is none.

        One user at a time, and a user that fails or is cancelled ends it: its next line could answer the
        wrong call. A shared one serves many at once, and stays while it is alive. One without `described` is
        not a program of ours, and is not listed.
        """
        here = self._of_this_loop()
        entry = await here.acquire(key, user)
        entry.described = described
        try:
            async with contextlib.AsyncExitStack() as turn:
                if not is_shared:
                    await turn.enter_async_context(entry.turn)
                one = cast("L", await here.ensure_running(entry, start))
                try:
                    yield one
                except BaseException:
                    if not is_shared:
                        await here.end(entry)
                    raise
        finally:
            await here.release(entry, user, idle_s, between_calls)

    def programs(self) -> tuple[PersistentProgram, ...]:
        """Current processes; callable from any thread."""
        with self._lock:
            parts = tuple(self._loops.values())
        return tuple(program for part in parts for program in part.programs())

    def on_event(self, event: Event) -> None:
        """Revocation: end processes whose tool, grant or approval an event takes away; from any thread."""
        match event:
            case ToolSwitched(state="disabled") | ToolUnregistered() | ToolQuarantined():
                self._end(lambda user: user.tool == event.tool_name, at_once=True)
            case AgentDeclared():
                self._end(lambda user: user.agent == event.agent, at_once=True)
            # After running calls: they were permitted under the old policies, and are checked again at their
            # start.
            case PoliciesChanged():
                self._end(lambda _: True, at_once=False)
            case ApprovalDecided(verdict="denied"):
                self._end(lambda user: user == User(event.tool_name, event.agent), at_once=False)
            case _:
                pass

    def _end(self, matches: Matches, *, at_once: bool) -> None:
        with self._lock:
            loops = dict(self._loops)
        for loop, part in loops.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(part.end_matching, matches, at_once)

    async def close(self) -> None:
        """End all processes of this event loop."""
        with self._lock:
            found = self._loops.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found.close()
        await self._pool.close()

    def close_soon(self) -> None:
        """End all, from any thread: they die with the zygotes that they were forked from."""
        with self._lock:
            loops, self._loops = self._loops, {}
            unsubscribe, self._unsubscribe = self._unsubscribe, None
        if unsubscribe is not None:
            unsubscribe()
        for loop, part in loops.items():
            try:
                loop.call_soon_threadsafe(part.close_in_background)
            except RuntimeError:  # the loop was closed
                part.discard()
        self._pool.close_soon()

    def _of_this_loop(self) -> "_LoopProcesses":
        loop = asyncio.get_running_loop()
        with self._lock:
            for other in [other for other in self._loops if other.is_closed()]:
                self._loops.pop(other).discard()
            if self._unsubscribe is None:  # Only now: a bus without listeners skips creating events.
                self._unsubscribe = self._bus.subscribe(self.on_event)
            if loop not in self._loops:
                self._loops[loop] = _LoopProcesses(self._pool, self._most)
            return self._loops[loop]


class _Entry:
    """Pool entry of a key: its process, and the calls that use it."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.one: LiveProcess | None = None
        self.users: list[User] = []
        """Of running calls."""
        self.known: set[User] = set()
        """Of all calls so far."""
        self.ends_when_idle = False
        """Whether it ends with the last running call."""
        self.described: ProcessStatus | None = None
        self.since = datetime.now(UTC)
        """When its process was started."""
        self.state = IdlePolicy.RUNNING
        self.turn = asyncio.Lock()
        self.starting = asyncio.Lock()
        self.timer: asyncio.TimerHandle | None = None


class _LoopProcesses:
    """Pool entries of one event loop."""

    def __init__(self, pool: Pool, most: int) -> None:
        self._pool = pool
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._endings: set[asyncio.Task[None]] = set()
        """Tasks that end or suspend processes."""

    def programs(self) -> Iterator[PersistentProgram]:
        """Living processes, with their calls."""
        for entry in tuple(self._entries.values()):
            agent = next(iter(entry.known)).agent  # All have the same agent: it is part of the key.
            if entry.one is not None and entry.one.is_alive and entry.described is not None:
                yield PersistentProgram(
                    **entry.described._asdict(),
                    agent=agent,
                    since=entry.since,
                    state=entry.state,
                    calls=len(entry.users),
                )

    async def acquire(self, key: Hashable, user: User) -> _Entry:
        """The entry of a key, with one more user; the least recently used idle entry is evicted if needed."""
        entry = self._entries.get(key)
        if entry is None:
            await self._make_room()
            entry = self._entries.setdefault(key, _Entry(key))
        self._entries.move_to_end(key)
        entry.users.append(user)
        entry.known.add(user)
        if entry.timer is not None:
            entry.timer.cancel()
        return entry

    async def _make_room(self) -> None:
        # Bounded: each process holds memory, and a caller's paths decide how many keys there are.
        while len(self._entries) >= self._most:  # Others may arrive while one ends.
            idle = next((entry for entry in self._entries.values() if not entry.users), None)
            if idle is None:
                raise SandboxExhausted(f"{self._most} programs that stay are all in use")
            del self._entries[idle.key]
            await self.end(idle)

    async def ensure_running(self, entry: _Entry, start: Start[Any]) -> LiveProcess:
        """The living process of an entry; started if there is none."""
        async with entry.starting:
            if entry.one is not None and not await _is_usable(entry.one):
                await self.end(entry)
            if entry.one is None:
                entry.one = cast("LiveProcess", await start(self._pool))
                entry.since = datetime.now(UTC)
            entry.state = IdlePolicy.RUNNING
            entry.one.set_active(is_active=True)
            return entry.one

    async def release(self, entry: _Entry, user: User, idle_s: float, between_calls: IdlePolicy) -> None:
        """Drop a user; the last one starts the idle timer, and suspends the process if configured."""
        entry.users.remove(user)
        if entry.users:
            return
        is_here = self._entries.get(entry.key) is entry
        if entry.one is None or entry.ends_when_idle or not is_here:
            self._forget(entry)
            return
        entry.one.set_active(is_active=False)
        entry.timer = self._loop.call_later(idle_s, self._end_if_idle, entry)
        if between_calls is IdlePolicy.STOPPED:
            # Shielded: cancelling the caller must not leave the program running.
            await asyncio.shield(self._in_background(self._suspend(entry)))

    async def _suspend(self, entry: _Entry) -> None:
        """Suspend an idle process, unless a call began meanwhile; kill it if that fails."""
        async with entry.starting:
            if entry.one is None or entry.users:
                return
            try:
                await entry.one.suspend()
                entry.state = IdlePolicy.STOPPED
            except SandboxBroken as error:
                log.warning("a program was ended between calls", extra={"reason": error.message})
                await self.end(entry)

    def end_matching(self, matches: Matches, at_once: bool) -> None:  # noqa: FBT001 -- by call_soon_threadsafe
        """End processes of matching users; `at_once` also during their calls, but never during others'."""
        for entry in [entry for entry in self._entries.values() if any(map(matches, entry.known))]:
            # A shared process may serve calls of other users, which must not fail for this one.
            if entry.users and (not at_once or not all(map(matches, entry.users))):
                entry.ends_when_idle = True
            else:
                self._forget(entry)

    def _forget(self, entry: _Entry) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
        if entry.one is not None:
            self._end_soon(entry)

    def _end_if_idle(self, entry: _Entry) -> None:
        if not entry.users:
            self._forget(entry)

    async def end(self, entry: _Entry) -> None:
        """Kill the process of an entry, even if the caller is cancelled meanwhile."""
        if entry.one is not None:
            await asyncio.shield(self._end_soon(entry))

    def _end_soon(self, entry: _Entry) -> "asyncio.Task[None]":
        one, entry.one = entry.one, None
        return self._in_background(_ended(one))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._loop.create_task(work)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        return task

    async def close(self) -> None:
        """End all."""
        for entry in self._entries.values():
            if entry.timer is not None:
                entry.timer.cancel()
            self._end_soon(entry)
        self._entries.clear()
        while self._endings:
            await asyncio.wait(self._endings)

    def discard(self) -> None:
        """End all after the loop was closed without `close`."""
        for entry in self._entries.values():
            if entry.one is not None:
                entry.one.discard()
        self._entries.clear()

    def close_in_background(self) -> None:
        """Close as a task of this loop."""
        self._closing = self._loop.create_task(self.close())  # The loop holds tasks weakly.


async def _is_usable(one: LiveProcess) -> bool:
    """Whether it can be talked to, after resuming it."""
    if not one.is_alive:
        return False
    try:
        await one.resume()
    except (SandboxBroken, OSError) as error:
        log.warning("a program that was stopped is not continued", extra={"reason": str(error)})
        return False
    return True


async def _ended(one: LiveProcess | None) -> None:
    if one is not None:
        await one.close()
