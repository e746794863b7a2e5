"""Templates of one event loop: which tools have one, for how long, and how many at once (SBX-2).

A template is made inside the first admitted call of a tool by an agent, and serves the calls of that agent
alone. It ends with its zygote, when its code changes, after a number of forks, at an age, and when there are
too many of them or too little memory, the least recently used first. A tool without one is imported anew by
each of its workers, which is slower and in no other way different.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolkeep.limits import MIB
from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.plan import NotThere, Recipe, ZygotePlan
from toolkeep.sandbox.template_process import Template, Unsealed
from toolkeep.sandbox.worker_source import SourceGone, Worker
from toolkeep.sandbox.zygote_process import Zygote

log = logging.getLogger("toolkeep.sandbox")

_MOST: Final = 64
"""Templates at once; one takes some 5 MiB, with pandas 45."""
_FORKS: Final = 10_000
_SECONDS: Final = 600.0
"""How long one is used: what its tool computed at import, such as today's date, gets old."""
_FREE_BYTES: Final = 256 * MIB
"""Memory that must be available before another one is made."""

Name = tuple[str, str, tuple[str, ...]]
"""Kind of worker, owner, and the programs that its workers may start."""


@dataclass(slots=True)
class _Entry:
    """A template, or the reason why there is none."""

    starting: "asyncio.Task[tuple[Zygote, Template]]"
    since: float
    is_asked_again: bool = False


class TemplatePool:
    """Makes and ends templates."""

    def __init__(
        self,
        zygote: Callable[[ZygotePlan], Awaitable[Zygote]],
        in_background: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._zygote = zygote
        self._in_background = in_background
        self._entries: OrderedDict[Name, _Entry] = OrderedDict()
        self._asked: OrderedDict[Name, None] = OrderedDict()
        """Names that were refused for lack of room once: asked for again, they get one."""
        self._retired: set[tuple[Zygote, Template]] = set()

    async def worker(self, kind: str, owner: str, recipe: Recipe, until: float) -> Worker | None:
        """A worker from the template of this kind; None if there is none."""
        if recipe.worker.template_filter is None:
            return None
        name = kind, owner, recipe.grant.run
        entry = self._current(name)
        if entry is None:
            if not self._has_room(name):
                return None
            entry = self._entries[name] = self._started(recipe, until)
        self._entries.move_to_end(name)
        try:
            # The import serves other calls too: it goes on if this one is cancelled.
            _, template = await asyncio.shield(entry.starting)
            return await template.fork(recipe.worker, recipe.grant)
        except (Unsealed, SourceGone, SandboxBroken, SandboxExhausted, NotThere, TimeoutError):
            return None

    def has_failed(self, kind: str) -> str:
        """Why a kind has no template although it was to have one; empty if it has, or was not tried yet."""
        for name, entry in self._entries.items():
            if name[0] == kind and (error := _failure(entry)) is not None:
                return str(error)
        return ""

    def _current(self, name: Name) -> _Entry | None:
        """The entry of a name, unless it is used up, stale or too old."""
        entry = self._entries.get(name)
        if entry is None or not entry.starting.done():
            return entry
        if _failure(entry) is None:
            zygote, template = entry.starting.result()
            is_fresh = not template.is_gone and template.forks < _FORKS and not zygote.is_stale()
        else:
            is_fresh = True
        if is_fresh and self._loop.time() - entry.since < _SECONDS:
            return entry
        self._drop(name)
        return None

    def _started(self, recipe: Recipe, until: float) -> _Entry:
        starting = self._loop.create_task(self._start(recipe, until))
        # Awaited by whoever needs it, or by nobody any more.
        starting.add_done_callback(_note_failure)
        return _Entry(starting, self._loop.time())

    async def _start(self, recipe: Recipe, until: float) -> tuple[Zygote, Template]:
        """Start a fork server and wait until its template is sealed."""
        zygote = await self._zygote(recipe.zygote)
        template = await zygote.start_template(recipe.worker, recipe.grant.run)
        try:
            async with asyncio.timeout_at(until):
                await template.sealed()
        except BaseException:
            self._in_background(zygote.close_template(template))
            raise
        return zygote, template

    def _has_room(self, name: Name) -> bool:
        """Whether another one may be made; the least recently used one makes room for who asks again.

        Otherwise a thousand tools in rotation would each make a template that serves one call.
        """
        if len(self._entries) < _MOST and _available_bytes() > _FREE_BYTES:
            return True
        if name not in self._asked:
            self._asked[name] = None
            while len(self._asked) > _MOST:
                self._asked.popitem(last=False)
            return False
        del self._asked[name]
        if self._entries:
            self._drop(next(iter(self._entries)))
        return _available_bytes() > _FREE_BYTES

    # --- the end ---------------------------------------------------------------------------------

    def forget(self, kind: str) -> None:
        """End the templates of a kind."""
        for name in [name for name in self._entries if name[0] == kind]:
            self._drop(name)

    def _drop(self, name: Name) -> None:
        entry = self._entries.pop(name)
        if not entry.starting.done():
            entry.starting.cancel()
        elif _failure(entry) is None:
            self._retired.add(entry.starting.result())
            self.close_used_up()

    def close_used_up(self) -> None:
        """End the templates that were replaced and serve no call any more."""
        for pair in [pair for pair in self._retired if pair[1].is_gone or not pair[1].is_used]:
            self._retired.discard(pair)
            zygote, template = pair
            self._in_background(zygote.close_template(template))

    def close(self) -> None:
        """Make no more; the zygotes end those that there are."""
        for entry in self._entries.values():
            entry.starting.cancel()
        self._entries.clear()
        self._retired.clear()


def _failure(entry: _Entry) -> BaseException | None:
    """Why it could not be made; None while it is not known."""
    if not entry.starting.done():
        return None
    return asyncio.CancelledError() if entry.starting.cancelled() else entry.starting.exception()


def _note_failure(starting: "asyncio.Task[tuple[Zygote, Template]]") -> None:
    if not starting.cancelled() and (error := starting.exception()) is not None:
        log.info("a tool has no template: each of its workers imports it anew", extra={"reason": str(error)})


def _available_bytes() -> int:
    """Memory that could be taken without swapping."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0
