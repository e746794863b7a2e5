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
from pathlib import Path
from typing import Any, Final

import msgspec

from toolkeep.limits import MIB
from toolkeep.sandbox.code_watch import CodeWatch
from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.plan import NotThere, Recipe, ZygotePlan
from toolkeep.sandbox.template_process import Template, Unsealed
from toolkeep.sandbox.worker_source import SourceGone, Worker
from toolkeep.sandbox.zygote_process import Zygote

log = logging.getLogger("toolkeep.sandbox")

_FREE_BYTES: Final = 256 * MIB
"""Memory that must be available before another one is made."""

_STILL_IMPORTED: Final = "a call was given up while its worker was still importing the tool"
_GUARD: Final = 'what a script does belongs below `if __name__ == "__main__":`'

Name = tuple[str, str, tuple[str, ...]]
"""Kind of worker, owner, and the programs that its workers may start."""


class TemplateLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many templates there are, and how long each is used."""

    most: int = 64
    """At once; one takes some 5 MiB, with pandas 45."""
    forks: int = 10_000
    seconds: float = 600.0
    """What a tool computed at import, such as today's date, gets old."""


class _Made(msgspec.Struct, frozen=True):
    """A sealed template."""

    zygote: Zygote
    template: Template
    code: CodeWatch

    def is_stale(self) -> bool:
        is_over = self.template.is_gone or self.template.is_over
        return is_over or self.zygote.is_stale() or self.code.have_changed()

    async def forked(self, recipe: Recipe) -> Worker:
        try:
            return await self.template.fork(recipe.worker, recipe.grant)
        except SourceGone:
            log.warning("a fork server ended", extra={"reason": self.template.last_words})
            raise

    async def close(self) -> None:
        self.code.close()
        await self.zygote.close_template(self.template)


class _Entry(msgspec.Struct, frozen=True):
    """A template, or the reason why there is none."""

    starting: "asyncio.Task[_Made]"
    since: float


class TemplatePool:
    """Makes and ends templates."""

    def __init__(
        self,
        limits: TemplateLimits,
        zygote: Callable[[ZygotePlan], Awaitable[Zygote]],
        in_background: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._zygote = zygote
        self._in_background = in_background
        self._entries: OrderedDict[Name, _Entry] = OrderedDict()
        self._asked: OrderedDict[Name, None] = OrderedDict()
        """Names that were refused for lack of room once: asked for again, they get one."""
        self._retired: set[_Made] = set()

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
            made = await asyncio.shield(entry.starting)
            return await made.forked(recipe)
        except (Unsealed, SourceGone, SandboxBroken, SandboxExhausted, NotThere, OSError):
            return None
        except asyncio.CancelledError:
            if entry.starting.cancelled() and not _is_cancelled():
                return None  # It was dropped meanwhile, the call was not.
            if not entry.starting.done():
                note_unfinished_import(recipe)
            raise

    def failure(self, kind: str) -> str:
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
        is_stale = _failure(entry) is None and (
            entry.starting.result().is_stale() or entry.starting.result().template.forks >= self._limits.forks
        )
        if not is_stale and self._loop.time() - entry.since < self._limits.seconds:
            return entry
        self._drop(name)
        return None

    def _started(self, recipe: Recipe, until: float) -> _Entry:
        starting = self._loop.create_task(self._start(recipe, until))
        # Awaited by whoever needs it, or by nobody any more.
        starting.add_done_callback(_note_failure)
        return _Entry(starting, self._loop.time())

    async def _start(self, recipe: Recipe, until: float) -> _Made:
        """Start a fork server and wait until its template is sealed."""
        zygote = await self._zygote(recipe.zygote)
        # Before the import, so that a change in the meantime counts. In a thread: it may be a large project.
        code = await asyncio.to_thread(CodeWatch, recipe.zygote.code)
        try:
            template = await zygote.start_template(recipe.worker, recipe.grant.run)
        except BaseException:
            code.close()
            raise
        made = _Made(zygote, template, code)
        try:
            async with asyncio.timeout_at(until):
                await template.sealed()
        except BaseException:
            self._in_background(made.close())
            raise
        return made

    def _has_room(self, name: Name) -> bool:
        """Whether another one may be made; the least recently used one makes room for who asks again.

        Otherwise a thousand tools in rotation would each make a template that serves one call.
        """
        if len(self._entries) < self._limits.most and _available_bytes() > _FREE_BYTES:
            return True
        if name not in self._asked:
            self._asked[name] = None
            while len(self._asked) > self._limits.most:
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

    def forget_zygote(self, zygote: Zygote) -> None:
        """End the templates of a zygote that makes room for another."""
        for name, entry in list(self._entries.items()):
            if entry.starting.done() and _failure(entry) is None and entry.starting.result().zygote is zygote:
                self._drop(name)

    def forget_all(self) -> None:
        """End all templates; calls that run go on."""
        for name in list(self._entries):
            self._drop(name)

    def _drop(self, name: Name) -> None:
        entry = self._entries.pop(name)
        if not entry.starting.done():
            entry.starting.cancel()
        elif _failure(entry) is None:
            self._retired.add(entry.starting.result())
            self.close_used_up()

    def close_used_up(self, _: object = None) -> None:
        """End the templates that were replaced and serve no call any more; after the end of each worker."""
        for made in [made for made in self._retired if made.template.is_gone or not made.template.is_used]:
            self._retired.discard(made)
            self._in_background(made.close())

    def close(self) -> None:
        """Make no more; the zygotes end those that there are."""
        for entry in self._entries.values():
            entry.starting.cancel()
            if entry.starting.done() and _failure(entry) is None:
                entry.starting.result().code.close()
        for made in self._retired:
            made.code.close()
        self._entries.clear()
        self._retired.clear()


def note_unfinished_import(recipe: Recipe) -> None:
    """Say in the log that a call ended while its tool was being imported."""
    log.warning(_STILL_IMPORTED, extra={"tool": recipe.worker.tool, "hint": _GUARD})


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _failure(entry: _Entry) -> BaseException | None:
    """Why it could not be made; None while it is not known."""
    if not entry.starting.done():
        return None
    return asyncio.CancelledError() if entry.starting.cancelled() else entry.starting.exception()


def _note_failure(starting: "asyncio.Task[_Made]") -> None:
    if not starting.cancelled() and (error := starting.exception()) is not None:
        log.info("a tool has no template: each of its workers imports it anew", extra={"reason": str(error)})


def _available_bytes() -> int:
    """Memory that could be taken without swapping."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0
