"""Threads for work that blocks: used again, never waited for, gone with their keep."""

import asyncio
import contextvars
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from toolkeep.execution import thread_pool as threads_module
from toolkeep.execution.thread_pool import NoThread, ThreadPool

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO", default="nobody")


class Slot:
    def __init__(self) -> None:
        self.holders = 0

    def hold(self) -> None:
        self.holders += 1

    def release(self) -> None:
        self.holders -= 1

    def note_use(self, cpu_ms: float, peak_memory_bytes: int | None = None) -> None:
        """Nobody reads it."""


@pytest.fixture
def threads() -> Iterator[ThreadPool]:
    threads = ThreadPool()
    yield threads
    threads.close()


async def run(threads: ThreadPool, work: Callable[[], Any], *, may_stop: bool = False) -> Any:
    return await threads.run(work, Slot(), may_stop=may_stop)


def test_one_call_after_the_other_uses_the_same_thread(threads: ThreadPool) -> None:
    async def call() -> set[threading.Thread]:
        return {await run(threads, threading.current_thread) for _ in range(20)}

    assert len(asyncio.run(call())) == 1


def test_work_that_never_ends_keeps_nobody_waiting(threads: ThreadPool) -> None:
    may_end, slot = threading.Event(), Slot()

    async def call() -> str:
        stuck = [asyncio.ensure_future(threads.run(may_end.wait, slot, may_stop=False)) for _ in range(70)]
        await asyncio.sleep(0)
        answer: str = await run(threads, lambda: "done")
        assert slot.holders == 70
        may_end.set()
        await asyncio.gather(*stuck)
        return answer

    assert asyncio.run(call()) == "done"
    assert slot.holders == 0


def test_each_call_has_the_context_of_its_caller_and_leaves_none(threads: ThreadPool) -> None:
    def work() -> str:
        before = WHO.get()
        WHO.set("changed")
        return before

    async def call() -> list[str]:
        first = await run(threads, work)
        WHO.set("ada")
        return [first, await run(threads, work), WHO.get()]

    assert asyncio.run(call()) == ["nobody", "ada", "ada"]


@pytest.mark.parametrize("raised", [ValueError, SystemExit, KeyboardInterrupt, StopIteration])
def test_what_work_raises_reaches_the_caller_and_the_thread_lives_on(
    threads: ThreadPool, raised: type[BaseException]
) -> None:
    def work() -> None:
        raise raised

    async def call() -> threading.Thread:
        with pytest.raises(ValueError if raised is ValueError else RuntimeError):
            await run(threads, work)
        found: threading.Thread = await run(threads, threading.current_thread)
        return found

    assert asyncio.run(call()).is_alive()


def test_a_thread_without_work_ends_after_a_while(
    threads: ThreadPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads_module, "IDLE_SECONDS", 0.001)
    thread: threading.Thread = asyncio.run(run(threads, threading.current_thread))
    thread.join()
    assert asyncio.run(run(threads, threading.current_thread)) is not thread


def test_work_that_comes_while_a_thread_is_about_to_end_is_done(
    threads: ThreadPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient(queue.SimpleQueue[Any]):
        """Every second time, nothing came in time; what comes just then has to be taken."""

        tries = 0

        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            self.tries += timeout is not None
            if timeout is not None and self.tries % 2 == 0:
                while threads._idle:  # until it was given work
                    pass
                raise queue.Empty
            return super().get()

    monkeypatch.setattr(queue, "SimpleQueue", Impatient)

    async def call() -> set[threading.Thread]:
        return {await asyncio.wait_for(run(threads, threading.current_thread), 30) for _ in range(4)}

    assert len(asyncio.run(call())) == 1


def test_closing_ends_the_threads_that_wait_and_later_those_that_work(threads: ThreadPool) -> None:
    may_end, begun = threading.Event(), threading.Event()

    def wait() -> threading.Thread:
        begun.set()
        may_end.wait()
        return threading.current_thread()

    async def call() -> list[threading.Thread]:
        busy = asyncio.ensure_future(run(threads, wait))
        await asyncio.sleep(0)
        begun.wait()
        idle = await run(threads, threading.current_thread)
        threads.close()
        assert not idle.is_alive()
        may_end.set()
        return [idle, await busy]

    for thread in asyncio.run(call()):
        thread.join()


def test_a_fork_starts_threads_of_its_own(threads: ThreadPool) -> None:
    asyncio.run(run(threads, threading.current_thread))
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        code = 1
        try:
            code = 0 if asyncio.run(run(threads, lambda: "done")) == "done" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_caller_that_gives_up_leaves_work_that_looks_time_to_end(threads: ThreadPool) -> None:
    wanted, begun, slot = threading.Event(), threading.Event(), Slot()
    wanted.set()

    def look() -> None:
        begun.set()
        while wanted.is_set():
            pass

    async def call() -> None:
        task = asyncio.ensure_future(threads.run(look, slot, may_stop=True))
        await asyncio.sleep(0)
        begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        wanted.clear()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert slot.holders == 0

    asyncio.run(call())


def test_a_slot_is_given_back_where_no_thread_can_be_started(threads: ThreadPool) -> None:
    slot = Slot()

    async def call() -> None:
        await threads.run(lambda: None, slot, may_stop=False)

    before = threading.stack_size(1 << 46)  # more than there is
    try:
        with pytest.raises(NoThread):
            asyncio.run(call())
    finally:
        threading.stack_size(before)
    assert slot.holders == 0


def test_work_to_its_end_keeps_its_result_and_tells_of_a_cancellation_afterwards(threads: ThreadPool) -> None:
    may_end, found = threading.Event(), list[str]()

    async def call() -> None:
        found.append(await threads.run_to_end(lambda: "taken" if may_end.wait() else ""))
        await asyncio.sleep(0)
        found.append("not cancelled")

    async def cancelled() -> None:
        asyncio.get_running_loop().call_later(0.05, may_end.set)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call(), 0.01)

    asyncio.run(cancelled())
    assert found == ["taken"]
