"""An event loop for callers that have none."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import pytest

from toolkeep import Keep, tool
from toolkeep.execution.loop_thread import LoopThread


@pytest.fixture
def loop_thread() -> Iterator[LoopThread]:
    loop_thread = LoopThread()
    yield loop_thread
    loop_thread.close()


BEFORE: set[threading.Thread] = set()
"""Loops of keeps that other tests did not close."""


@pytest.fixture(autouse=True)
def _loops_of_others() -> None:
    BEFORE.update(threading.enumerate())


def ours() -> list[threading.Thread]:
    named = (thread for thread in threading.enumerate() if thread.name == "toolkeep-loop")
    return [thread for thread in named if thread not in BEFORE]


async def giving(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


async def where() -> tuple[str, asyncio.AbstractEventLoop]:
    return threading.current_thread().name, asyncio.get_running_loop()


def test_no_thread_is_started_before_the_first_use() -> None:
    LoopThread().close()
    assert ours() == []


def test_coroutines_run_one_after_another_on_one_loop(loop_thread: LoopThread) -> None:
    (name, first), (_, second) = loop_thread.run(where), loop_thread.run(where)
    assert (name, first is second) == ("toolkeep-loop", True)


def test_it_works_inside_a_running_loop(loop_thread: LoopThread) -> None:
    async def cell() -> Any:
        return loop_thread.run(lambda: giving(1))

    assert asyncio.run(cell()) == 1


def test_an_exception_comes_out(loop_thread: LoopThread) -> None:
    async def failing() -> None:
        raise KeyError("a")

    with pytest.raises(KeyError, match="a"):
        loop_thread.run(failing)


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt])
def test_what_tries_to_end_the_process_reaches_its_caller_and_no_other(
    loop_thread: LoopThread, ending: type[BaseException]
) -> None:
    async def end() -> None:
        raise ending("enough")

    answers: list[BaseException] = []

    def ask() -> None:
        try:
            loop_thread.run(end)
        except BaseException as error:  # noqa: BLE001 -- looked at below
            answers.append(error)

    _, loop = loop_thread.run(where)
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(10)
    assert [type(error) for error in answers] == [ending]
    assert loop_thread.run(where)[1] is loop


def test_several_threads_share_one_loop(loop_thread: LoopThread) -> None:
    with ThreadPoolExecutor(8) as pool:
        loops = {loop for _, loop in pool.map(lambda _: loop_thread.run(where), range(50))}
    assert (len(loops), len(ours())) == (1, 1)


def test_closing_cancels_what_runs_and_ends_the_thread(loop_thread: LoopThread) -> None:
    running, cleaned_up = threading.Event(), threading.Event()

    async def endless() -> None:
        try:
            running.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned_up.set()

    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(loop_thread.run, endless)
        running.wait()
        loop_thread.close()
        with pytest.raises((CancelledError, asyncio.CancelledError)):
            waiter.result()
    assert cleaned_up.is_set()
    assert ours() == []


def test_closing_leaves_behind_what_does_not_end(
    loop_thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkeep.execution.loop_thread.CLOSE_GRACE_SECONDS", 0.01)
    may_end = threading.Event()

    async def stubborn() -> None:
        while not may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    async def begin() -> "asyncio.Task[None]":
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        return task

    left = loop_thread.run(begin)
    closing = threading.Thread(target=loop_thread.close, daemon=True)
    closing.start()
    closing.join(10)
    is_closed = not closing.is_alive()
    may_end.set()
    assert (is_closed, left.done(), ours()) == (True, False, [])


def test_closing_twice_is_fine_and_it_can_be_used_again(loop_thread: LoopThread) -> None:
    assert loop_thread.run(lambda: giving(1)) == 1
    loop_thread.close()
    loop_thread.close()
    assert loop_thread.run(lambda: giving(2)) == 2
    loop_thread.close()
    assert ours() == []


def test_waiting_for_itself_is_an_error_not_a_deadlock(loop_thread: LoopThread) -> None:
    async def inner() -> Any:
        return loop_thread.run(lambda: giving(1))

    answers: list[BaseException] = []

    def ask() -> None:
        try:
            loop_thread.run(inner)
        except BaseException as error:  # noqa: BLE001 -- looked at below
            answers.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(10)
    if asking.is_alive():  # else closing would wait for ever, too
        loop_thread._loop = None
    assert [type(error) for error in answers] == [RuntimeError]
    assert "await" in str(answers[0])


def test_a_tool_cannot_close_the_keep_that_runs_it_and_closes_no_half_of_it() -> None:
    keep = Keep()
    said: list[str] = []

    @tool(side_effects=["None"])
    async def close() -> str:
        """Close the keep."""
        try:
            keep.close()
        except RuntimeError as error:
            said.append(str(error))
        return "goes on"

    keep.register(close)
    with keep:
        assert [keep.call_sync("close", {}).value for _ in range(2)] == ["goes on"] * 2
    assert said == ["a tool that call_sync runs cannot close the keep that runs it"] * 2
    assert ours() == []


def test_work_that_comes_while_it_is_closed_is_answered(loop_thread: LoopThread) -> None:
    """Whatever the moment: each caller gets its value or a cancellation, and none waits for ever."""

    def call(number: int) -> Any:
        try:
            return loop_thread.run(lambda: giving(number))
        except (CancelledError, asyncio.CancelledError):
            return number

    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(call, number) for number in range(200)]
        for _ in range(20):
            loop_thread.close()
        assert [one.result(timeout=30) for one in calls] == list(range(200))
    loop_thread.close()
    assert ours() == []


def test_a_fork_of_the_process_gets_a_loop_of_its_own(loop_thread: LoopThread) -> None:
    assert loop_thread.run(lambda: giving(1)) == 1
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(0 if loop_thread.run(lambda: giving(2)) == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_fork_does_not_wait_for_a_thread_that_handed_something_over(loop_thread: LoopThread) -> None:
    """The lock is held by a thread that the child does not have."""
    assert loop_thread.run(lambda: giving(1)) == 1
    with loop_thread._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            os._exit(0 if loop_thread.run(lambda: giving(2)) == 2 else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert loop_thread.run(lambda: giving(3)) == 3
