"""Pool of one-shot workers: a call takes an idle one, and the next is forked after the reply (SBX-2).

Input: a key whose recipe was admitted, a request, a deadline and a size limit. Output: a `Reply`. An idle
worker holds no grant and has run no tool code: both come with the call. Otherwise a thread that a tool starts
at import would run with the grant while no call does, even after the grant was revoked. Every worker is
killed after its one call, whatever the result, and so is everything that it started (EXE-4): state that a
tool leaves in its process must not reach the next call. A pool serves any number of event loops; each has its
own zygotes and workers, and only recipes are shared.
"""

import asyncio
import contextlib
import functools
import itertools
import json
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Coroutine, Hashable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Final

import msgspec

from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.frames import frame
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.launch import LaunchedZygote
from toolkeep.sandbox.memory_limits import MemoryLimits
from toolkeep.sandbox.output_pieces import OutputListener
from toolkeep.sandbox.plan import NotThere, Recipe, WorkerPlan, ZygotePlan
from toolkeep.sandbox.progress_frames import Listener, nobody
from toolkeep.sandbox.template_pool import TemplateLimits, TemplatePool, note_unfinished_import
from toolkeep.sandbox.worker_exchange import Ending, Exchange, Reply, Request, Serve
from toolkeep.sandbox.worker_source import SourceGone, Worker
from toolkeep.sandbox.zygote_process import Zygote

log = logging.getLogger("toolkeep.sandbox")

REAP_SECONDS: Final = 5.0
"""How long a call that was cut short waits until its processes are gone; a tree takes milliseconds."""

_STARTS: Final = 2
"""A zygote that died is replaced once per call."""


class Key(msgspec.Struct, frozen=True):
    """What workers of one kind share: tool definition, level, grant."""

    definition: str
    level: Isolation
    grant: Hashable


class PoolSize(msgspec.Struct, frozen=True, kw_only=True):
    """Capacity per event loop."""

    warm_per_kind: int = 2
    """Idle workers with the same plan."""
    warm: int = 32
    """Idle workers of all kinds; a fork of Python shares most of its memory."""
    calls: int = 64
    """Concurrent calls; more wait until their deadline."""
    calls_each: int = 48
    """Of these, how many one owner may have: calls that sleep must not starve everybody else."""
    zygotes: int = 16
    forks_per_zygote: int = 1000
    """A zygote is replaced after this many: all its workers share one memory layout (ASLR is per zygote)."""
    templates: TemplateLimits = msgspec.field(default_factory=TemplateLimits)


class Pool:
    """Runs requests in fresh workers."""

    def __init__(self, size: PoolSize | None = None) -> None:
        self._size = size or PoolSize()
        self._recipes: dict[Key, Recipe] = {}
        self._loops: dict[asyncio.AbstractEventLoop, _LoopPool] = {}
        self._memory_limits = MemoryLimits()
        self._lock = threading.Lock()

    def admit(self, key: Key, recipe: Recipe) -> None:
        """Register the recipe of a key."""
        if key.level is not recipe.worker.level:
            raise ValueError("a key has the level of its recipe")
        if self._recipes.setdefault(key, recipe) != recipe:
            raise ValueError("a key stands for one recipe")

    def forget(self, key: Key) -> None:
        """Unregister a key; idle workers that only it uses are killed."""
        self._recipes.pop(key, None)
        with self._lock:
            loops = dict(self._loops)
        for loop, part in loops.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(part.forget, key)

    def end_templates(self) -> None:
        """End all templates, because a tool, an agent or a policy changed; from any thread."""
        with self._lock:
            loops = dict(self._loops)
        for loop, part in loops.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(part.end_templates)

    def template_failure(self, key: Key) -> str:
        """Why the workers of a key import their tool anew, in this event loop; empty if they do not."""
        return self._of_this_loop().template_failure(key)

    async def run(
        self,
        key: Key,
        request: bytes,
        deadline_s: float,
        output_bytes: int,
        on_progress: Listener = nobody,
        on_output: OutputListener | None = None,
        serve: Serve | None = None,
        owner: str = "",
    ) -> Reply:
        """Run a request in a fresh worker. Raises SandboxBroken or SandboxExhausted if none is available.

        `on_progress` and `on_output` are called in this event loop, never after the reply; `serve` makes the
        egress proxy of a worker that has one, for the duration of the call; `owner` is the agent, none of
        which may take all slots.
        """
        until = asyncio.get_running_loop().time() + deadline_s
        asked = Request(request, until, output_bytes, on_progress, on_output, serve)
        return await self._of_this_loop().run(key, self._recipes[key], asked, owner)

    def start_zygote(self, plan: ZygotePlan, launched: LaunchedZygote | None = None) -> None:
        """Start the zygote of a plan ahead of its first call, which will say if it does not come up.

        One that was `launched` gets the plan, or is ended if another has it.
        """
        self._of_this_loop().start_zygote(plan, launched)

    async def lease(self, recipe: Recipe) -> Worker:
        """A worker for the caller's own use. The caller sends its grant and reaps it.

        It ends with the pool at the latest. Raises SandboxBroken or SandboxExhausted if none is available.
        """
        return await self._of_this_loop().lease(recipe)

    async def close(self) -> None:
        """End all workers and zygotes of this event loop."""
        with self._lock:
            found = self._loops.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found.close()

    def close_soon(self) -> None:
        """End all workers and zygotes of all event loops, from any thread. Running loops do it themselves."""
        with self._lock:
            loops, self._loops = self._loops, {}
        for loop, part in loops.items():
            try:
                loop.call_soon_threadsafe(part.close_in_background)
            except RuntimeError:  # the loop was closed
                part.discard()

    def _of_this_loop(self) -> "_LoopPool":
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            found = _LoopPool(self._size, self._memory_limits)
            with self._lock:
                closed = [self._loops.pop(other) for other in list(self._loops) if other.is_closed()]
                self._loops[loop] = found
            for left in closed:
                left.discard()
        return found


class _LoopPool:
    """The part of a pool that belongs to one event loop."""

    def __init__(self, size: PoolSize, memory_limits: MemoryLimits) -> None:
        self._size = size
        self._memory_limits = memory_limits
        self._loop = asyncio.get_running_loop()
        self._idle: OrderedDict[str, deque[Worker]] = OrderedDict()
        """Idle workers, by kind."""
        self._ordered: dict[str, int] = {}
        self._kinds: dict[Key, str] = {}
        self._names: dict[tuple[ZygotePlan, WorkerPlan], str] = {}
        self._numbers = itertools.count()
        self._zygotes: OrderedDict[ZygotePlan, Zygote] = OrderedDict()
        self._starting: dict[ZygotePlan, asyncio.Lock] = {}
        self._retired: set[Zygote] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._templates = TemplatePool(size.templates, self._zygote, self._in_background)
        self._slots = WorkerSlots(size.calls, size.calls_each)
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None

    # --- calls -------------------------------------------------------------------------------

    async def run(self, key: Key, recipe: Recipe, request: Request, owner: str) -> Reply:
        """One call, from waiting for a slot to the end of its worker."""
        try:
            async with asyncio.timeout_at(request.until):
                await self._slots.take(owner)
        except TimeoutError as error:
            raise SandboxExhausted("too many calls were running until the deadline") from error
        try:
            return await self._run(key, recipe, request, owner)
        finally:
            self._slots.release(owner)

    async def _run(self, key: Key, recipe: Recipe, request: Request, owner: str) -> Reply:
        """Take or fork a worker, exchange the request and reply, kill the worker."""
        kind = self._kind(key, recipe)
        try:
            async with asyncio.timeout_at(request.until):
                worker = await self._worker(kind, recipe, owner, request.until)
        except TimeoutError:
            return Reply(Ending.TIMED_OUT, text="no worker was ready in time")
        is_over = False
        grant = b"" if worker.is_furnished else frame(json.dumps(recipe.grant.to_json()).encode())
        exchange = Exchange(worker, request, grant)
        try:
            worker.set_active(is_active=True)
            async with _served(worker, request):
                reply = await exchange.run()
            # Before it is killed: a worker stays after its reply to be measured.
            use = worker.use()
            if reply.ending is Ending.DIED and worker.is_out_of_memory():
                return Reply(Ending.OUT_OF_MEMORY, use=use)
            is_over = reply.ending in _ENDED_BY_ITSELF
            return replace(reply, use=use, is_templated=worker.is_furnished)
        finally:
            if exchange.reply.cancelled() and not exchange.is_ready:
                note_unfinished_import(recipe)
            # In `finally`, also on cancellation: a worker that survives its call would keep running with its
            # grant.
            gone = worker.source.reap(worker)
            if worker.is_furnished:
                gone.add_done_callback(self._templates.close_used_up)
            else:
                self._loop.call_soon(self._after_call, key, recipe)
            if not is_over:
                await asyncio.wait({gone}, timeout=REAP_SECONDS)

    async def _worker(self, kind: str, recipe: Recipe, owner: str, until: float) -> Worker:
        """A fork of the tool's template if it has one, else an idle worker, else a new one."""
        found = await self._templates.worker(kind, owner, recipe, until)
        return found or self._idle_worker(kind) or await self._forked(kind, recipe)

    async def lease(self, recipe: Recipe) -> Worker:
        """A worker that belongs to the caller."""
        name = f"lent-{next(self._numbers)}"
        worker = await self._forked(name, recipe)
        if isinstance(worker.source, Zygote):
            worker.source.forget(name)
        return worker

    def _idle_worker(self, kind: str) -> Worker | None:
        """An idle worker of a kind that is alive and whose mounts are still current."""
        waiting = self._idle.get(kind)
        while waiting:
            self._idle.move_to_end(kind)
            worker = waiting.popleft()
            # Each call checks: a granted folder may have been moved away and replaced while the worker
            # waited.
            if worker.is_alive() and not worker.source.is_stale():
                return worker
            worker.source.reap(worker)
        return None

    async def _forked(self, kind: str, recipe: Recipe) -> Worker:
        last_words = ""
        for _ in range(_STARTS):
            zygote = await self._zygote(recipe.zygote)
            try:
                return await zygote.fork(kind, recipe.worker)
            except SourceGone:
                last_words = zygote.last_words
        raise SandboxBroken(f"a zygote and its replacement both ended {last_words}".rstrip())

    def _kind(self, key: Key, recipe: Recipe) -> str:
        """Name of the worker kind that a key uses; the grant is not part of it."""
        if key not in self._kinds:
            plans = (recipe.zygote, recipe.worker)
            if plans not in self._names:
                self._names[plans] = str(next(self._numbers))
            self._kinds[key] = self._names[plans]
        return self._kinds[key]

    # --- workers that wait -------------------------------------------------------------------

    def forget(self, key: Key) -> None:
        """Kill idle workers of a kind that no other key uses, and drop its plans."""
        kind = self._kinds.pop(key, None)
        if kind is None or kind in self._kinds.values():
            return
        for worker in self._idle.pop(kind, ()):
            worker.source.reap(worker)
        self._templates.forget(kind)
        self._names = {plans: name for plans, name in self._names.items() if name != kind}
        for zygote in self._zygotes.values():
            zygote.forget(kind)

    def template_failure(self, key: Key) -> str:
        """Why a key has no template although it was to have one."""
        return self._templates.failure(self._kinds.get(key, ""))

    def end_templates(self) -> None:
        """End all templates; calls that run go on."""
        self._templates.forget_all()

    def _after_call(self, key: Key, recipe: Recipe) -> None:
        """Order the next worker, and retire used zygotes. Never fails: a call can fork on demand."""
        zygote, kind = self._zygotes.get(recipe.zygote), self._kinds.get(key)
        if self._is_closed or zygote is None or zygote.is_gone or kind is None:
            return
        if zygote.forks >= self._size.forks_per_zygote:
            zygote.forks = 0
            self._in_background(self._replace(recipe.zygote))
        expected = len(self._idle.get(kind, ())) + self._ordered.get(kind, 0)
        if expected < self._size.warm_per_kind and self._has_room():
            self._order(zygote, kind, recipe)
        self._close_used_up()

    def _order(self, zygote: Zygote, kind: str, recipe: Recipe) -> None:
        with contextlib.suppress(SourceGone, SandboxExhausted):
            ordered = zygote.order(kind, recipe.worker)
            self._ordered[kind] = self._ordered.get(kind, 0) + 1
            ordered.add_done_callback(functools.partial(self._arrived, kind))

    def _arrived(self, kind: str, ordered: "asyncio.Future[Worker]") -> None:
        self._ordered[kind] -= 1
        if not self._ordered[kind]:
            del self._ordered[kind]
        if not ordered.cancelled() and ordered.exception() is None:
            self._store(kind, ordered.result())

    def _store(self, kind: str, worker: Worker) -> None:
        if self._is_closed or kind not in self._kinds.values():
            worker.source.reap(worker)
        else:
            worker.set_active(is_active=False)
            self._idle.setdefault(kind, deque()).append(worker)

    def _has_room(self) -> bool:
        """Whether another idle worker fits; the least recently used kind makes room."""
        waiting = sum(map(len, self._idle.values())) + sum(self._ordered.values())
        if waiting < self._size.warm:
            return True
        for workers in self._idle.values():
            if workers:
                worker = workers.popleft()
                worker.source.reap(worker)
                return True
        return False

    # --- zygotes -----------------------------------------------------------------------------

    async def _zygote(self, plan: ZygotePlan, launched: LaunchedZygote | None = None) -> Zygote:
        """The running zygote of a plan; a dead or stale one is replaced."""
        async with self._starting.setdefault(plan, asyncio.Lock()):
            found = self._zygotes.get(plan)
            if found is None or found.is_gone or found.is_stale():
                found = await self._started(plan, launched)
        if plan in self._zygotes:
            self._zygotes.move_to_end(plan)
        return found

    def start_zygote(self, plan: ZygotePlan, launched: LaunchedZygote | None) -> None:
        """Start it in the background unless it runs."""
        self._in_background(self._start_ahead(plan, launched))

    async def _start_ahead(self, plan: ZygotePlan, launched: LaunchedZygote | None) -> None:
        try:
            with contextlib.suppress(SandboxBroken, SandboxExhausted, NotThere):
                await self._zygote(plan, launched)
        finally:
            if launched is not None:
                launched.end()

    async def _replace(self, plan: ZygotePlan) -> None:
        with contextlib.suppress(SandboxBroken, SandboxExhausted, NotThere):
            await self._started(plan)

    async def _started(self, plan: ZygotePlan, launched: LaunchedZygote | None = None) -> Zygote:
        """Start a zygote and check that its folders were not swapped meanwhile."""
        zygote = await Zygote.start(plan, self._memory_limits, launched)
        if self._is_closed:
            await zygote.close()
            raise SandboxBroken("the pool was closed")
        # Checked after the mounts were made: identities before and after must agree, or a swapped folder is
        # mounted.
        if zygote.is_stale():
            await zygote.close()
            raise NotThere("a folder was replaced while it was mounted")
        self._put(plan, zygote)
        return zygote

    def _put(self, plan: ZygotePlan, zygote: Zygote) -> None:
        before = self._zygotes.pop(plan, None)
        self._zygotes[plan] = zygote
        if before is not None:
            if before.is_stale():
                self._kill_idle_workers(before)
            self._retired.add(before)
        while len(self._zygotes) > self._size.zygotes:
            plan_of_oldest, oldest = self._zygotes.popitem(last=False)
            self._starting.pop(plan_of_oldest, None)
            self._kill_idle_workers(oldest)
            self._templates.forget_zygote(oldest)
            self._retired.add(oldest)
        self._close_used_up()

    def _kill_idle_workers(self, zygote: Zygote) -> None:
        """Kill the idle workers of a zygote."""
        for workers in self._idle.values():
            for worker in [worker for worker in workers if worker.source is zygote]:
                workers.remove(worker)
                zygote.reap(worker)

    def _close_used_up(self) -> None:
        for zygote in [zygote for zygote in self._retired if zygote.is_gone or not zygote.is_used]:
            self._retired.discard(zygote)
            self._in_background(zygote.close())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- the end -----------------------------------------------------------------------------

    async def close(self) -> None:
        """End everything of this loop."""
        self._is_closed = True
        self._templates.close()
        for zygote in {*self._zygotes.values(), *self._retired}:
            self._kill_idle_workers(zygote)
            self._in_background(zygote.close())
        self._zygotes.clear()
        self._retired.clear()
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._memory_limits.close()

    def close_in_background(self) -> None:
        """Close as a task of this loop."""
        closing = self._loop.create_task(self.close())
        self._closing = closing  # The loop holds tasks weakly.

    def discard(self) -> None:
        """End everything after the loop was closed without `close`."""
        for workers in self._idle.values():
            for worker in workers:
                worker.discard()
        for zygote in {*self._zygotes.values(), *self._retired}:
            zygote.discard()
        self._memory_limits.close()


_ENDED_BY_ITSELF: Final = frozenset({Ending.OK, Ending.FAILED, Ending.RAISED})
"""After these the worker only waits to be killed."""


def _served(worker: Worker, request: Request) -> AbstractAsyncContextManager[object]:
    if not worker.egress_sockets or request.serve is None:
        return contextlib.nullcontext()
    return request.serve(worker.egress_sockets)


class _Share(msgspec.Struct):
    """Slots of one owner."""

    free: asyncio.Semaphore
    users: int = 0
    """Calls that hold a slot or wait for one."""


class WorkerSlots:
    """Semaphore of concurrent calls, with a quota per owner."""

    def __init__(self, most: int, most_each: int) -> None:
        self._free = asyncio.Semaphore(most)
        self._most_each = most_each
        self._shares: dict[str, _Share] = {}

    async def take(self, owner: str) -> None:
        """Wait for a slot, first within the owner's quota.

        In this order: an owner over its quota must not hold a shared slot while it waits.
        """
        share = self._shares.setdefault(owner, _Share(asyncio.Semaphore(self._most_each)))
        share.users += 1
        try:
            await share.free.acquire()
            try:
                await self._free.acquire()
            except BaseException:
                share.free.release()
                raise
        except BaseException:
            self._leave(owner, share)
            raise

    def release(self, owner: str) -> None:
        """Release a slot."""
        share = self._shares[owner]
        self._free.release()
        share.free.release()
        self._leave(owner, share)

    def _leave(self, owner: str, share: _Share) -> None:
        share.users -= 1
        if not share.users:
            del self._shares[owner]
