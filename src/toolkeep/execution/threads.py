"""Threads for work that blocks: a free one does it, else a new one. Nobody waits for a thread.

Work that never ends holds its own thread and no other. A thread that has nothing to do ends after a while,
and with its keep: starting one anew takes five times as long as waking one that waits.
"""

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from toolkeep.errors import Code
from toolkeep.execution.runner import Held, RunRefused
from toolkeep.forks import tell_in_forks

IDLE_SECONDS: Final = 5.0
_BUSY, _IDLE = "toolkeep-tool", "toolkeep-idle"

Tell: TypeAlias = Callable[[], object]
Job: TypeAlias = Callable[[], Tell]
"""Does its work, and gives back how to tell of it; does not raise."""


class NoThread(RunRefused):
    """No thread could be started, so that the work was not begun."""

    def __init__(self) -> None:
        super().__init__(Code.NOT_RUNNABLE, "The machine has no room for another thread; nothing was run")


class Threads:
    """The threads of one keep."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._is_closed = False
        tell_in_forks(self)

    async def run(self, work: Callable[[], Any], slot: Held, *, may_stop: bool) -> Any:
        """The work's result, from a thread that outlives a caller who gives up, and keeps the slot.

        Work that may look whether it is still wanted is waited for when it is not; `execute` bounds how long.
        Raises `NoThread` where there is none for it.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        slot.hold()
        try:
            self._give(partial(_job, partial(contextvars.copy_context().run, work), slot, loop, done))
        except RuntimeError as error:  # what Python says where it can start no thread
            slot.release()
            raise NoThread from error
        if not may_stop:
            return await done
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            await asyncio.wait({done})
            done.exception()  # looked at, so that asyncio does not complain
            raise

    def close(self) -> None:
        """End the threads that wait for work; those that work end when they have done it."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.given.put(None)
        for worker in idle:
            worker.join()

    def rests(self, worker: "_Worker") -> bool:
        """Have a thread wait for work; False where it is to end."""
        with self._lock:
            if not self._is_closed:
                self._idle.append(worker)
            return not self._is_closed

    def leaves(self, worker: "_Worker") -> bool:
        """Let go of a thread that waits; False where it was given work meanwhile."""
        with self._lock:
            if worker in self._idle:
                self._idle.remove(worker)
                return True
            return False

    def leave_to_parent(self) -> None:
        """In a fork of the process: none of the threads is here."""
        self._lock, self._idle = threading.Lock(), []

    def _give(self, job: Job) -> None:
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is not None:
            worker.given.put(job)
            return
        worker = _Worker(self)
        worker.given.put(job)
        worker.start()


class _Worker(threading.Thread):
    """One thread: does a job, waits for the next."""

    def __init__(self, threads: Threads) -> None:
        super().__init__(name=_BUSY, daemon=True)
        self.given: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads = threads

    def run(self) -> None:
        stays = True
        while stays and (job := self._next()) is not None:
            self.name = _BUSY
            tell = job()
            self.name = _IDLE
            del job  # what it holds is not kept until the next one comes
            # Free before anyone hears of it: whoever does may come at once with the next job.
            stays = self._threads.rests(self)
            tell()
            del tell

    def _next(self) -> Job | None:
        try:
            return self.given.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            return None if self._threads.leaves(self) else self.given.get()


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
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
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
