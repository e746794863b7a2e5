"""The programs that stay between calls: found again by key, ended when nobody wants them, bounded in number.

One for each key, and a key holds whatever tells two apart: definition, agent, grant, environment. So what a
program remembers of one agent is never told to another. Each event loop has its own. Restarting is left to
the next call: one that fails only ends its program.
"""

import asyncio
import contextlib
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from typing import Any, Protocol, TypeVar, cast

from toolkeep.limits import RESIDENTS
from toolkeep.sandbox.errors import SandboxExhausted
from toolkeep.sandbox.pool import Pool


class Living(Protocol):
    """What stays: a program, or somebody who talks to one."""

    @property
    def is_alive(self) -> bool:
        """Whether it can still be talked to."""

    def attend(self, *, closely: bool) -> None:
        """Say whether it has a call now, or waits for one."""

    async def close(self) -> None:
        """End it."""

    def abandon(self) -> None:
        """Let go of it when no event loop is left."""


L = TypeVar("L", bound=Living)
Start = Callable[[Pool], Awaitable[L]]


class Residents:
    """All that stay for one keep."""

    def __init__(self, most: int = RESIDENTS) -> None:
        self._most = most
        self._pool = Pool()
        self._loops: dict[asyncio.AbstractEventLoop, _LoopResidents] = {}
        self._lock = threading.Lock()

    @contextlib.asynccontextmanager
    async def use(
        self, key: Hashable, start: Start[L], *, idle_s: float, is_shared: bool = False
    ) -> AsyncIterator[L]:
        """The one of this key, started where there is none.

        One user at a time, and whoever fails or gives up while using it ends it: what it would say next is
        not known. A shared one serves many at once, and stays for as long as it is alive.
        """
        here = self._here()
        kept = await here.taken(key)
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
            here.let_go(kept, idle_s)

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
            if loop not in self._loops:
                self._loops[loop] = _LoopResidents(self._pool, self._most)
            return self._loops[loop]


class _Kept:
    """A key's place: who lives there, and how many want something of it."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.one: Living | None = None
        self.users = 0
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

    async def taken(self, key: Hashable) -> _Kept:
        """The place of a key, with one more user; the place that was not used for longest makes room."""
        kept = self._kept.get(key)
        if kept is None:
            await self._make_room()
            kept = self._kept.setdefault(key, _Kept(key))
        self._kept.move_to_end(key)
        kept.users += 1
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
            if kept.one is not None and not kept.one.is_alive:
                await self.end(kept)
            if kept.one is None:
                kept.one = cast("Living", await start(self._pool))
            kept.one.attend(closely=True)
            return kept.one

    def let_go(self, kept: _Kept, idle_s: float) -> None:
        """One user less; the last one closes the door after a while."""
        kept.users -= 1
        if kept.users:
            return
        if kept.one is None:
            if self._kept.get(kept.key) is kept:
                del self._kept[kept.key]
            return
        kept.one.attend(closely=False)
        kept.timer = self._loop.call_later(idle_s, self._leave, kept)

    def _leave(self, kept: _Kept) -> None:
        if not kept.users and self._kept.get(kept.key) is kept:
            del self._kept[kept.key]
            self._end_soon(kept)

    async def end(self, kept: _Kept) -> None:
        """End who lives there, also if whoever asks is given up meanwhile."""
        if kept.one is not None:
            await asyncio.shield(self._end_soon(kept))

    def _end_soon(self, kept: _Kept) -> "asyncio.Task[None]":
        one, kept.one = kept.one, None
        task = self._loop.create_task(_ended(one))
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


async def _ended(one: Living | None) -> None:
    if one is not None:
        await one.close()
