"""Who may start now: concurrency, queue and rate for each agent and each tool, over loops and threads."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from toolkeep.calls import Refusal, ToolCall
from toolkeep.errors import Code
from toolkeep.execution import admission as admission_module
from toolkeep.execution.admission import Admission, Slot
from toolkeep.limits import CallLimits
from toolkeep.testing import FakeClock

pytestmark = pytest.mark.spec("EXE-7")


def request(tool: str = "read", agent: str = "local") -> ToolCall:
    return ToolCall(id="1", tool=tool, arguments={}, agent=agent, correlation_id="c")


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """A call that waits for ever is a failure, not a hanging test."""
    asyncio.run(asyncio.wait_for(scenario, 30))


def limited(**limits: Any) -> Admission:
    return Admission(CallLimits(**limits))


async def enter(admission: Admission, tool: str = "read", agent: str = "local") -> Slot:
    slot = await admission.admit(request(tool, agent), tool)
    assert isinstance(slot, Slot)
    return slot


async def refused(admission: Admission, tool: str = "read", agent: str = "local") -> Code:
    refusal = await admission.admit(request(tool, agent), tool)
    assert isinstance(refusal, Refusal)
    return refusal.code


async def waiting(admission: Admission, tool: str = "read", agent: str = "local") -> "asyncio.Task[Slot]":
    """A call that got as far as the queue."""
    task = asyncio.create_task(enter(admission, tool, agent))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    return task


def test_calls_within_the_limits_enter_at_once_and_leave_nothing() -> None:
    async def scenario() -> None:
        admission = limited(agent_concurrency=2, tool_concurrency=2)
        slots = [await enter(admission) for _ in range(2)]
        assert admission.running == 2
        for slot in slots:
            slot.release()
        assert admission.running == 0

    run(scenario())


@pytest.mark.parametrize(
    ("limits", "others"),
    [
        ({"agent_concurrency": 1}, ("another_tool", "local")),
        ({"tool_concurrency": 1}, ("read", "another_agent")),
    ],
    ids=["agent", "tool"],
)
def test_a_call_beyond_the_concurrency_waits_for_its_turn(
    limits: dict[str, int], others: tuple[str, str]
) -> None:
    async def scenario() -> None:
        admission = limited(**limits)
        first = await enter(admission)
        second = await waiting(admission, *others)
        first.release()
        (await second).release()
        assert admission.running == 0

    run(scenario())


def test_another_agent_and_another_tool_do_not_wait() -> None:
    async def scenario() -> None:
        admission = limited(agent_concurrency=1, tool_concurrency=1)
        await enter(admission)
        await enter(admission, "another_tool", "another_agent")
        assert admission.running == 2

    run(scenario())


def test_calls_enter_in_the_order_in_which_they_came() -> None:
    async def scenario() -> None:
        entered: list[int] = []

        async def call(number: int) -> None:
            slot = await enter(admission)
            entered.append(number)
            slot.release()

        admission = limited(tool_concurrency=1)
        first = await enter(admission)
        async with asyncio.TaskGroup() as group:
            for number in range(10):
                group.create_task(call(number))
            await asyncio.sleep(0)
            first.release()
        assert entered == list(range(10))

    run(scenario())


@pytest.mark.parametrize("limits", [{"agent_concurrency": 1}, {"tool_concurrency": 1}], ids=["agent", "tool"])
def test_a_full_queue_is_answered_at_once(limits: dict[str, int]) -> None:
    async def scenario() -> None:
        admission = limited(queue=1, **limits)
        first = await enter(admission)
        second = await waiting(admission)
        assert await refused(admission) is Code.QUEUE_FULL
        first.release()
        (await second).release()
        assert admission.running == 0
        (await enter(admission)).release()

    run(scenario())


def test_a_call_that_gives_up_in_the_queue_leaves_no_slot_behind() -> None:
    async def scenario() -> None:
        admission = limited(agent_concurrency=2, tool_concurrency=1)
        first = await enter(admission)
        second = await waiting(admission)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        first.release()
        assert admission.running == 0
        for slot in [await enter(admission), await enter(admission, "another_tool")]:
            slot.release()
        assert admission.running == 0

    run(scenario())


def test_a_call_that_gives_up_just_when_its_turn_comes_lets_the_next_one_in() -> None:
    async def scenario(*, after_the_turn: bool) -> None:
        admission = limited(tool_concurrency=1)
        first = await enter(admission)
        second, third = await waiting(admission), await waiting(admission)
        first.release()
        if after_the_turn:
            await asyncio.sleep(0)
        second.cancel()
        (await third).release()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert admission.running == 0

    run(scenario(after_the_turn=False))
    run(scenario(after_the_turn=True))


def test_a_waiting_call_in_another_loop_gets_the_slot() -> None:
    admission = limited(tool_concurrency=1)
    is_held, is_queued, may_leave = threading.Event(), threading.Event(), threading.Event()

    async def hold() -> None:
        slot = await enter(admission)
        is_held.set()
        await asyncio.to_thread(may_leave.wait)
        slot.release()

    async def wait_for_it() -> int:
        task = await waiting(admission)
        is_queued.set()
        slot = await task
        running = admission.running
        slot.release()
        return running

    with ThreadPoolExecutor(2) as pool:
        holder = pool.submit(asyncio.run, hold())
        is_held.wait()
        waiter = pool.submit(asyncio.run, wait_for_it())
        is_queued.wait()
        may_leave.set()
        holder.result()
        assert waiter.result() == 1
    assert admission.running == 0


def test_a_loop_that_ended_while_its_call_waited_does_not_keep_the_slot() -> None:
    admission = limited(agent_concurrency=1)
    loop = asyncio.new_event_loop()
    first = asyncio.run(enter(admission))
    task = loop.create_task(enter(admission))
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # abandoned on purpose
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    first.release()
    assert admission.running == 0
    asyncio.run(enter(admission)).release()


def test_many_threads_with_loops_of_their_own_never_exceed_the_limit() -> None:
    admission = limited(tool_concurrency=3, agent_concurrency=100)
    lock, inside, most = threading.Lock(), [0], [0]

    async def once() -> None:
        slot = await enter(admission)
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        await asyncio.sleep(0)
        with lock:
            inside[0] -= 1
        slot.release()

    async def many() -> None:
        await asyncio.gather(*(once() for _ in range(50)))

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(asyncio.run, many()) for _ in range(8)]:
            done.result()
    assert (inside, most[0] <= 3, admission.running) == ([0], True, 0)


def test_a_slot_is_given_back_when_the_last_holder_lets_go() -> None:
    admission = limited()
    slot = asyncio.run(enter(admission))
    seen = [(admission.running, slot.is_shared)]
    for step in (slot.hold, slot.release, slot.release):
        step()
        seen.append((admission.running, slot.is_shared))
    assert seen == [(1, False), (1, True), (1, False), (0, False)]


@pytest.mark.parametrize(
    "others", [("another_tool", "local"), ("read", "another_agent")], ids=["agent", "tool"]
)
def test_a_call_too_soon_after_others_is_answered_at_once(others: tuple[str, str]) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        admission = Admission(CallLimits(calls_per_second=2.0, burst=3.0), clock)
        for _ in range(3):
            (await enter(admission)).release()
        assert await refused(admission, *others) is Code.RATE_LIMITED
        clock.advance(0.5)
        (await enter(admission)).release()
        assert await refused(admission) is Code.RATE_LIMITED
        clock.advance(1000)
        for _ in range(3):
            (await enter(admission)).release()
        assert await refused(admission) is Code.RATE_LIMITED
        assert admission.running == 0

    run(scenario())


def test_servers_divide_the_concurrency_and_the_rate_of_an_agent() -> None:
    async def scenario() -> None:
        admission = limited(agent_concurrency=4, tool_concurrency=1, queue=9)
        admission.divide(3)
        slots = [await enter(admission, "first")]
        waiters = [await waiting(admission, f"tool_{number}") for number in range(3)]
        admission.divide(2)  # one more may run
        slots.append(await waiters[0])
        assert not waiters[1].done()
        admission.divide(1)
        slots += [await waiters[1], await waiters[2]]
        assert admission.running == 4
        hurried = Admission(CallLimits(calls_per_second=1.0, burst=4.0), FakeClock())
        hurried.divide(2)
        slots += [await enter(hurried) for _ in range(2)]
        assert await refused(hurried) is Code.RATE_LIMITED
        for slot in slots:
            slot.release()
        assert admission.running == 0

    run(scenario())


def test_gates_that_stand_idle_are_forgotten_and_busy_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(admission_module, "_REMEMBERED", 4)
        admission = limited(agent_concurrency=1)
        first = await enter(admission)
        for number in range(20):
            (await enter(admission, f"tool_{number}", f"agent_{number}")).release()
        assert len(admission._gates) <= 5
        assert admission.running == 1
        second = await waiting(admission)
        first.release()
        (await second).release()

    run(scenario())


def test_the_gate_of_a_call_is_not_forgotten_while_it_enters(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that invents tool names would otherwise shed its own gate, and its limits with it."""

    async def scenario() -> None:
        monkeypatch.setattr(admission_module, "_REMEMBERED", 4)
        admission = limited(agent_concurrency=1)
        for number in range(3):
            (await enter(admission, f"tool_{number}")).release()
        slot = await enter(admission, "one_more")
        assert admission.running == 1
        second = await waiting(admission, "yet_another")
        slot.release()
        (await second).release()

    run(scenario())


def test_a_call_that_waits_for_a_person_lets_others_run_its_tool_and_stays_one_of_its_agents() -> None:
    async def scenario() -> None:
        admission = limited(agent_concurrency=1, tool_concurrency=1)
        asked = await enter(admission)
        async with asked.released_for_approval():
            (await enter(admission, agent="another_agent")).release()
            mine = await waiting(admission, "another_tool")
        queued = await waiting(admission, agent="another_agent")
        asked.release()
        (await mine).release()
        (await queued).release()
        assert admission.running == 0

    run(scenario())


def test_a_call_that_was_agreed_to_waits_for_its_turn() -> None:
    async def scenario() -> None:
        admission = limited(tool_concurrency=1)
        asked = await enter(admission)
        answered = asyncio.Event()

        async def ask() -> None:
            async with asked.released_for_approval():
                await answered.wait()

        asking = asyncio.create_task(ask())
        await asyncio.sleep(0)
        other = await enter(admission, agent="another_agent")
        answered.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asking.done()
        other.release()
        await asking
        asked.release()
        assert admission.running == 0

    run(scenario())


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_call_that_is_cancelled_while_it_stands_aside_leaves_nothing(*, is_answered: bool) -> None:
    async def scenario() -> None:
        admission = limited(tool_concurrency=1)
        asked = await enter(admission)
        answered = asyncio.Event()

        async def ask() -> None:
            async with asked.released_for_approval():
                await answered.wait()

        asking = asyncio.create_task(ask())
        await asyncio.sleep(0)
        other = await enter(admission)
        if is_answered:
            answered.set()
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
        asked.release()
        other.release()
        (await enter(admission)).release()
        assert admission.running == 0
        assert all(gate.is_idle for gate in admission._gates.values())

    run(scenario())
