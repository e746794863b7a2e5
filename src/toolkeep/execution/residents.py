"""The programs that stay between calls: found again by key, ended when nobody wants them, bounded in number.

One for each key, and a key holds whatever tells two apart: definition, agent, grant, environment. So what a
program remembers of one agent is never told to another. Each event loop has its own. Restarting is left to
the next call: one that fails only ends its program.

A program runs with its grant while no call uses it, so that it is ended as soon as it could not be called any
more (SBX-2): `hear` is told when a tool is disabled or removed, when an agent holds something else, when
policies change, and when a person says no. Where it is said so, it is stopped between calls: the last call is
over when no process of the program runs, and a program that cannot be stopped is ended.
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
from toolkeep.execution.staying import BetweenCalls
from toolkeep.limits import RESIDENTS
from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.pool import Pool

log = logging.getLogger("toolkeep.execution")


class Living(Protocol):
    """What stays: a program, or somebody who talks to one."""

    @property
    def is_alive(self) -> bool:
        """Whether it can still be talked to."""

    def attend(self, *, closely: bool) -> None:
        """Say whether it has a call now, or waits for one."""

    async def suspend(self) -> None:
        """Stop all its processes; SandboxBroken where it cannot be shown that none of them runs."""

    async def resume(self) -> None:
        """Continue its processes where they are stopped; SandboxBroken where one of them ran meanwhile."""

    async def close(self) -> None:
        """End it."""

    def abandon(self) -> None:
        """Let go of it when no event loop is left."""


L = TypeVar("L", bound=Living)
Start = Callable[[Pool], Awaitable[L]]


class User(NamedTuple):
    """Whose call uses a program: an upstream server answers several tools of one agent."""

    tool: str
    agent: str


Matches = Callable[[User], bool]


class Described(NamedTuple):
    """How a program is listed."""

    name: str
    """Of its tool, or of its upstream."""
    isolation: str
    grant: tuple[str, ...]


class PersistentProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program that stays between calls, as it is now (SBX-2)."""

    name: str
    """Of its tool, or of its upstream."""
    agent: str
    isolation: str
    grant: tuple[str, ...]
    """What it reaches beside its own code, such as `fs.read:/srv/books`."""
    since: datetime
    state: BetweenCalls
    calls: int
    """Calls that are under way, or wait for their turn."""


class Residents:
    """All that stay for one keep."""

    def __init__(self, bus: Bus, most: int = RESIDENTS) -> None:
        self._bus = bus
        self._unsubscribe: Callable[[], None] | None = None
        self._most = most
        self._pool = Pool()
        self._loops: dict[asyncio.AbstractEventLoop, _LoopResidents] = {}
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
        between_calls: BetweenCalls = BetweenCalls.RUNNING,
        described: Described | None = None,
    ) -> AsyncIterator[L]:
        """The one of this key, started where there is none.

        One user at a time, and whoever fails or gives up while using it ends it: what it would say next is
        not known. A shared one serves many at once, and stays for as long as it is alive. One that is not
        `described` is no program of ours, and is not listed.
        """
        here = self._here()
        kept = await here.taken(key, user)
        kept.described = described
        try:
            async with contextlib.AsyncExitStack() as turn:
                if not is_shared:
                    await turn.enter_async_context(kept.turn)
                one = cast("L", await here.living(kept, start))
                try:
                    yield one
                except BaseException:
                    if not is_shared:
                        await here.end(kept)
                    raise
        finally:
            await here.let_go(kept, user, idle_s, between_calls)

    def programs(self) -> tuple[PersistentProgram, ...]:
        """The programs there are now; asked from any thread."""
        with self._lock:
            parts = tuple(self._loops.values())
        return tuple(program for part in parts for program in part.programs())

    def hear(self, event: Event) -> None:
        """End the programs whose tool, grant or approval an event takes away; told from any thread."""
        match event:
            case ToolSwitched(state="disabled") | ToolUnregistered() | ToolQuarantined():
                self._end(lambda user: user.tool == event.tool_name, at_once=True)
            case AgentDeclared():
                self._end(lambda user: user.agent == event.agent, at_once=True)
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
                loop.call_soon_threadsafe(part.end_of, matches, at_once)

    async def close(self) -> None:
        """End all of this event loop."""
        with self._lock:
            found = self._loops.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found.close()
        await self._pool.close()

    def close_soon(self) -> None:
        """End all, from wherever: they end with the zygotes that they were forked from."""
        with self._lock:
            loops, self._loops = self._loops, {}
            unsubscribe, self._unsubscribe = self._unsubscribe, None
        if unsubscribe is not None:
            unsubscribe()
        for loop, part in loops.items():
            try:
                loop.call_soon_threadsafe(part.close_by_itself)
            except RuntimeError:  # the loop was closed
                part.abandon()
        self._pool.close_soon()

    def _here(self) -> "_LoopResidents":
        loop = asyncio.get_running_loop()
        with self._lock:
            for other in [other for other in self._loops if other.is_closed()]:
                self._loops.pop(other).abandon()
            if self._unsubscribe is None:  # only now: a bus that nobody listens to makes no events of calls
                self._unsubscribe = self._bus.subscribe(self.hear)
            if loop not in self._loops:
                self._loops[loop] = _LoopResidents(self._pool, self._most)
            return self._loops[loop]


class _Kept:
    """A key's place: who lives there, and whose calls use it."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.one: Living | None = None
        self.users: list[User] = []
        """Of the calls under way."""
        self.known: set[User] = set()
        """Of all calls so far."""
        self.is_leaving = False
        """Whether it ends with the last call under way."""
        self.described: Described | None = None
        self.since = datetime.now(UTC)
        """When its program was started."""
        self.state = BetweenCalls.RUNNING
        self.turn = asyncio.Lock()
        self.starting = asyncio.Lock()
        self.timer: asyncio.TimerHandle | None = None


class _LoopResidents:
    """Those of one event loop."""

    def __init__(self, pool: Pool, most: int) -> None:
        self._pool = pool
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._endings: set[asyncio.Task[None]] = set()
        """Programs that are being ended, or stopped."""

    def programs(self) -> Iterator[PersistentProgram]:
        """Those that live, with their calls."""
        for kept in tuple(self._kept.values()):
            agent = next(iter(kept.known)).agent  # one alone: a key holds it
            if kept.one is not None and kept.one.is_alive and kept.described is not None:
                yield PersistentProgram(
                    **kept.described._asdict(),
                    agent=agent,
                    since=kept.since,
                    state=kept.state,
                    calls=len(kept.users),
                )

    async def taken(self, key: Hashable, user: User) -> _Kept:
        """The place of a key, with one more user; the place that was not used for longest makes room."""
        kept = self._kept.get(key)
        if kept is None:
            await self._make_room()
            kept = self._kept.setdefault(key, _Kept(key))
        self._kept.move_to_end(key)
        kept.users.append(user)
        kept.known.add(user)
        if kept.timer is not None:
            kept.timer.cancel()
        return kept

    async def _make_room(self) -> None:
        while len(self._kept) >= self._most:  # others may come while one ends
            idle = next((kept for kept in self._kept.values() if not kept.users), None)
            if idle is None:
                raise SandboxExhausted(f"{self._most} programs that stay are all in use")
            del self._kept[idle.key]
            await self.end(idle)

    async def living(self, kept: _Kept, start: Start[Any]) -> Living:
        """Whoever lives at a place; moves in where nobody does."""
        async with kept.starting:
            if kept.one is not None and not await _is_usable(kept.one):
                await self.end(kept)
            if kept.one is None:
                kept.one = cast("Living", await start(self._pool))
                kept.since = datetime.now(UTC)
            kept.state = BetweenCalls.RUNNING
            kept.one.attend(closely=True)
            return kept.one

    async def let_go(self, kept: _Kept, user: User, idle_s: float, between_calls: BetweenCalls) -> None:
        """One user less; the last one closes the door after a while, and stops who lives there until then."""
        kept.users.remove(user)
        if kept.users:
            return
        is_here = self._kept.get(kept.key) is kept
        if kept.one is None or kept.is_leaving or not is_here:
            self._forget(kept)
            return
        kept.one.attend(closely=False)
        kept.timer = self._loop.call_later(idle_s, self._leave, kept)
        if between_calls is BetweenCalls.STOPPED:
            # Shielded: a caller who gives up must not leave a program running.
            await asyncio.shield(self._in_background(self._suspend(kept)))

    async def _suspend(self, kept: _Kept) -> None:
        """Stop who lives there, unless a call began meanwhile; end who cannot be stopped."""
        async with kept.starting:
            if kept.one is None or kept.users:
                return
            try:
                await kept.one.suspend()
                kept.state = BetweenCalls.STOPPED
            except SandboxBroken as error:
                log.warning("a program was ended between calls", extra={"reason": error.message})
                await self.end(kept)

    def end_of(self, matches: Matches, at_once: bool) -> None:  # noqa: FBT001 -- by call_soon_threadsafe
        """End what such users had; `at_once` also under their calls, but never under those of others."""
        for kept in [kept for kept in self._kept.values() if any(map(matches, kept.known))]:
            if kept.users and (not at_once or not all(map(matches, kept.users))):
                kept.is_leaving = True
            else:
                self._forget(kept)

    def _forget(self, kept: _Kept) -> None:
        if kept.timer is not None:
            kept.timer.cancel()
        if self._kept.get(kept.key) is kept:
            del self._kept[kept.key]
        if kept.one is not None:
            self._end_soon(kept)

    def _leave(self, kept: _Kept) -> None:
        if not kept.users:
            self._forget(kept)

    async def end(self, kept: _Kept) -> None:
        """End who lives there, also if whoever asks is given up meanwhile."""
        if kept.one is not None:
            await asyncio.shield(self._end_soon(kept))

    def _end_soon(self, kept: _Kept) -> "asyncio.Task[None]":
        one, kept.one = kept.one, None
        return self._in_background(_ended(one))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._loop.create_task(work)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        return task

    async def close(self) -> None:
        """End them all."""
        for kept in self._kept.values():
            if kept.timer is not None:
                kept.timer.cancel()
            self._end_soon(kept)
        self._kept.clear()
        while self._endings:
            await asyncio.wait(self._endings)

    def abandon(self) -> None:
        """End them after the loop was closed without `close`."""
        for kept in self._kept.values():
            if kept.one is not None:
                kept.one.abandon()
        self._kept.clear()

    def close_by_itself(self) -> None:
        """Close as a task of this loop."""
        self._closing = self._loop.create_task(self.close())  # a task that nobody holds may be collected


async def _is_usable(one: Living) -> bool:
    """Whether it can be talked to, and runs from here on."""
    if not one.is_alive:
        return False
    try:
        await one.resume()
    except (SandboxBroken, OSError) as error:
        log.warning("a program that was stopped is not continued", extra={"reason": str(error)})
        return False
    return True


async def _ended(one: Living | None) -> None:
    if one is not None:
        await one.close()
