"""Thread pool for blocking work, without a size limit: an idle thread is reused, else one is started.

Work that never ends blocks only its own thread. Admission control bounds how many there are. Idle threads
exit after a while, and with their keep: starting one takes five times as long as waking an idle one.
"""

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from toolkeep.errors import Code
from toolkeep.execution.runner import Held, RunRefused
from toolkeep.host.after_fork import register_after_fork

IDLE_SECONDS: Final = 5.0
"""How long an idle thread stays: longer than the pauses of a busy keep, and one at rest soon holds none."""
_BUSY, _IDLE = "toolkeep-tool", "toolkeep-idle"

Result = TypeVar("Result")
Tell: TypeAlias = Callable[[], object]
Job: TypeAlias = Callable[[], Tell]
"""Does its work and returns a callback that delivers the result; never raises."""


class _NoSlot:
    """The slot of what belongs to no call that runs."""

    def hold(self) -> None:
        """Do nothing."""

    def release(self) -> None:
        """Do nothing."""

    def note_use(self, cpu_ms: float, peak_memory_bytes: int | None = None) -> None:
        """Do nothing."""


NO_SLOT: Final = _NoSlot()


class NoThread(RunRefused):
    """No thread could be started; the work did not begin."""

    def __init__(self) -> None:
        super().__init__(Code.NOT_RUNNABLE, "The machine has no room for another thread; nothing was run")


class ThreadPool:
    """The threads of one keep."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._is_closed = False
        register_after_fork(self)

    async def run_to_end(self, work: Callable[[], Result]) -> Result:
        """Run work in a thread, as `to_end` does."""
        result: Result = await to_end(self.run(work, NO_SLOT, may_stop=False))
        return result

    async def run(self, work: Callable[[], Any], slot: Held, *, may_stop: bool) -> Any:
        """Run work in a thread, which keeps the slot even if the caller is cancelled.

        Work that polls for cancellation is waited for after one; `execute` bounds how long. Raises `NoThread`
        if no thread can be started.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        # Before the thread starts: it keeps the concurrency slot for as long as it really runs.
        slot.hold()
        try:
            # A copy of the context variables, so that the tool finds its client as in the event loop.
            self._give(partial(_job, partial(contextvars.copy_context().run, work), slot, loop, done))
        except RuntimeError as error:  # Python's error if no thread can be started.
            slot.release()
            raise NoThread from error
        if not may_stop:
            return await done
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            await asyncio.wait({done})
            done.exception()  # Retrieved, so that asyncio does not log it.
            raise

    def close(self) -> None:
        """End idle threads; busy ones exit when they are done."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.jobs.put(None)
        for worker in idle:
            worker.join()

    def mark_idle(self, worker: "_Worker") -> bool:
        """Mark a thread idle; False if it should exit."""
        with self._lock:
            if not self._is_closed:
                self._idle.append(worker)
            return not self._is_closed

    def remove_idle(self, worker: "_Worker") -> bool:
        """Remove an idle thread; False if it was given work meanwhile."""
        with self._lock:
            if worker in self._idle:
                self._idle.remove(worker)
                return True
            return False

    def leave_to_parent(self) -> None:
        """After fork(), in the child: none of the threads exists here."""
        self._lock, self._idle = threading.Lock(), []

    def _give(self, job: Job) -> None:
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is not None:
            worker.jobs.put(job)
            return
        worker = _Worker(self)
        worker.jobs.put(job)
        worker.start()


def is_on_loop() -> bool:
    """Whether an event loop runs in this thread: then nothing here may wait."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def to_end(work: Coroutine[Any, Any, Result]) -> Result:
    """Do work to its end, also if the caller is cancelled: that is delivered with its next `await`.

    Otherwise nobody would know what the work has taken, and had to give back.
    """
    running, is_cancelled = asyncio.ensure_future(work), False
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            is_cancelled = True
    task = asyncio.current_task()
    if is_cancelled and task is not None:
        task.uncancel()
        task.cancel()
    return running.result()


class _Worker(threading.Thread):
    """One thread: runs a job, waits for the next."""

    def __init__(self, threads: ThreadPool) -> None:
        super().__init__(name=_BUSY, daemon=True)
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads = threads

    def run(self) -> None:
        stays = True
        while stays and (job := self._next()) is not None:
            self.name = _BUSY
            tell = job()
            self.name = _IDLE
            del job  # Free what it references now, not when the next job comes.
            # Idle before the result is delivered: its receiver may come back at once with the next job.
            stays = self._threads.mark_idle(self)
            tell()
            del tell

    def _next(self) -> Job | None:
        try:
            return self.jobs.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            return None if self._threads.remove_idle(self) else self.jobs.get()


def _job(
    work: Callable[[], Any], slot: Held, loop: asyncio.AbstractEventLoop, done: "asyncio.Future[Any]"
) -> Tell:
    try:
        value, error = work(), None
    except BaseException as raised:  # noqa: BLE001 -- handed to whoever waits
        value, error = None, raised
    slot.release()
    return partial(_tell, loop, done, value, error)


def _tell(
    loop: asyncio.AbstractEventLoop, done: "asyncio.Future[Any]", value: Any, error: BaseException | None
) -> None:
    with contextlib.suppress(RuntimeError):  # The loop is closed.
        loop.call_soon_threadsafe(_settle, done, value, error)


def _settle(done: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if isinstance(error, (StopIteration, SystemExit, KeyboardInterrupt)):
        done.set_exception(RuntimeError(f"the tool raised {type(error).__name__}"))
    elif error is not None:
        done.set_exception(error)
    else:
        done.set_result(value)
