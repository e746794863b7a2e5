"""Running one call: its deadline, its cancellation, and the slot and claim that it leaves (EXE-4)."""

import asyncio
import contextvars
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.calls.test_order import HeldLog
from toolkeep import Code, Keep, ToolContext, ToolDefinition, tool
from toolkeep.calls import ToolResult
from toolkeep.execution import execute as execute_module
from toolkeep.execution.admission import Admission, Slot
from toolkeep.limits import CallLimits
from toolkeep.stores.records import MemoryRecord

SOON = 0.01
"""A deadline that passes while a test waits for it."""


class Stage:
    """A keep with a tool that runs until the test lets it end; threads are waited for."""

    def __init__(self, *, is_async: bool, **fields: Any) -> None:
        self.started, self.ended, self.may_end = threading.Event(), threading.Event(), threading.Event()
        self.cancelled = threading.Event()
        self.record = MemoryRecord()
        self.keep = Keep(record=lambda: self.record)
        self.keep.register(self._async(**fields) if is_async else self._sync(**fields))

    def _sync(self, **fields: Any) -> Any:
        @tool(name="run_on", description="Run until the test lets it end", **fields)
        def run(context: ToolContext) -> str:
            self.started.set()
            self.may_end.wait()
            if context.is_cancelled():
                self.cancelled.set()
            self.ended.set()
            return "ended"

        return run

    def _async(self, **fields: Any) -> Any:
        @tool(name="run_on", description="Run until it is cancelled", **fields)
        async def run(context: ToolContext) -> None:
            self.started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if context.is_cancelled():
                    self.cancelled.set()
                raise
            finally:
                self.ended.set()

        return run

    @property
    def running(self) -> int:
        return self.keep._pipeline.admission.running

    def codes(self) -> list[tuple[str, Any]]:
        """Type and codes of each record, in order."""
        return [(entry.record["type"], entry.record.get("codes")) for entry in self.record.log.entries]

    def let_end(self) -> None:
        self.may_end.set()
        self.keep.close()
        for thread in threading.enumerate():
            if thread.name == "toolkeep-tool":
                thread.join()


@pytest.fixture
def stages() -> Iterator[list[Stage]]:
    made: list[Stage] = []
    yield made
    for stage in made:
        stage.let_end()


@pytest.fixture
def slow_sync(stages: list[Stage]) -> Stage:
    stages.append(Stage(is_async=False, side_effects=["None"]))
    return stages[-1]


@pytest.fixture
def slow_async(stages: list[Stage]) -> Stage:
    stages.append(Stage(is_async=True, side_effects=["None"]))
    return stages[-1]


def message(result: ToolResult) -> str:
    assert result.error is not None
    return result.error.errors[0].message


async def until(event: threading.Event) -> None:
    await asyncio.to_thread(event.wait)


# --- the deadline ------------------------------------------------------------------------------------


def test_an_async_tool_is_cancelled_at_its_deadline_and_nothing_runs_on(slow_async: Stage) -> None:
    result = asyncio.run(slow_async.keep.call("run_on", {}, timeout_s=SOON))
    assert (result.code, message(result)) == (Code.TIMED_OUT, "Tool 'run_on' took longer than 0.01 s")
    assert slow_async.cancelled.is_set()
    assert slow_async.running == 0


def test_a_sync_tool_is_answered_at_once_says_that_it_runs_and_holds_its_slot(slow_sync: Stage) -> None:
    result = asyncio.run(slow_sync.keep.call("run_on", {}, timeout_s=SOON))
    assert not slow_sync.ended.is_set()
    assert (result.code, message(result)) == (
        Code.TIMED_OUT,
        "Tool 'run_on' took longer than 0.01 s and cannot be stopped: it still runs",
    )
    assert slow_sync.running == 1
    slow_sync.let_end()
    assert slow_sync.cancelled.is_set()
    assert slow_sync.running == 0


def test_a_sync_tool_that_looks_whether_it_is_wanted_has_ended_when_the_answer_comes() -> None:
    @tool(side_effects=["None"])
    def look(context: ToolContext) -> str:
        """Run until nobody waits."""
        while True:
            context.check_cancelled()
            time.sleep(0.001)

    keep = Keep()
    keep.register(look)
    result = asyncio.run(keep.call("look", {}, timeout_s=SOON))
    assert message(result) == "Tool 'look' took longer than 0.01 s"
    assert keep._pipeline.admission.running == 0


def test_the_deadline_of_the_definition_counts_without_an_option(
    slow_async: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkeep.definitions.constraints.DEFAULT_EXECUTION_SECONDS", SOON)
    assert asyncio.run(slow_async.keep.call("run_on", {})).code is Code.TIMED_OUT


def test_a_tool_that_does_not_let_itself_be_cancelled_keeps_its_slot_and_the_answer_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(execute_module, "CANCEL_GRACE_SECONDS", SOON)

    async def scenario() -> None:
        may_end, ended = asyncio.Event(), asyncio.Event()

        @tool
        async def stubborn() -> str:
            """Run on, whatever happens."""
            while not may_end.is_set():
                try:
                    await may_end.wait()
                except asyncio.CancelledError:
                    continue
            ended.set()
            return "done"

        keep = Keep()
        keep.register(stubborn)
        try:
            result = await keep.call("stubborn", {}, timeout_s=SOON)
            running, has_ended = keep._pipeline.admission.running, ended.is_set()
        finally:
            may_end.set()
        assert (
            message(result) == "Tool 'stubborn' took longer than 0.01 s and cannot be stopped: it still runs"
        )
        assert (running, has_ended) == (1, False)
        await ended.wait()
        await asyncio.sleep(0)
        assert keep._pipeline.admission.running == 0

    asyncio.run(scenario())


def test_a_tool_that_answers_its_cancellation_with_a_value_has_timed_out() -> None:
    @tool
    async def late() -> str:
        """Answer when it is too late."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"
        return "never"

    keep = Keep()
    keep.register(late)
    result = asyncio.run(keep.call("late", {}, timeout_s=SOON))
    assert (result.code, result.value, keep._pipeline.admission.running) == (Code.TIMED_OUT, None, 0)


def test_a_tool_that_fails_while_it_is_cancelled_has_timed_out() -> None:
    @tool
    async def clumsy() -> None:
        """Fail while it cleans up."""
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("on the way out")

    keep = Keep()
    keep.register(clumsy)
    assert asyncio.run(keep.call("clumsy", {}, timeout_s=SOON)).code is Code.TIMED_OUT


# --- the caller gives up -----------------------------------------------------------------------------


async def cancelled_while_running(stage: Stage, **options: Any) -> None:
    call = asyncio.create_task(stage.keep.call("run_on", {}, **options))
    await until(stage.started)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


CHAIN = [
    ("ToolInvoked", None),
    ("CapabilityCheck", None),
    ("PolicyDecision", None),
    ("ToolCompleted", [Code.CANCELLED.value]),
]


@pytest.mark.parametrize("effects", [["None"], None], ids=["reads", "may write"])
def test_the_callers_cancellation_reaches_an_async_tool_and_is_recorded(
    effects: list[str] | None, stages: list[Stage]
) -> None:
    stage = Stage(is_async=True, **({"side_effects": effects} if effects else {}))
    stages.append(stage)
    asyncio.run(cancelled_while_running(stage))
    assert stage.cancelled.is_set()
    assert stage.codes() == CHAIN
    assert stage.running == 0


def test_a_tool_that_does_not_let_itself_be_cancelled_keeps_its_slot_though_the_caller_gives_up_twice() -> (
    None
):
    async def scenario() -> None:
        asked_to_end, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @tool
        async def stubborn() -> None:
            """Run on, whatever happens."""
            while not may_end.is_set():
                try:
                    await may_end.wait()
                except asyncio.CancelledError:
                    asked_to_end.set()
            ended.set()

        keep = Keep()
        keep.register(stubborn)
        call = asyncio.create_task(keep.call("stubborn", {}))
        while not asked_to_end.is_set():
            await asyncio.sleep(0)
            call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        running = keep._pipeline.admission.running
        may_end.set()
        await ended.wait()
        await asyncio.sleep(0)
        assert (running, keep._pipeline.admission.running) == (1, 0)

    asyncio.run(scenario())


def test_a_sync_tool_is_told_of_the_cancellation_and_holds_its_slot_until_it_ends(slow_sync: Stage) -> None:
    asyncio.run(cancelled_while_running(slow_sync))
    assert not slow_sync.ended.is_set()
    assert slow_sync.codes() == CHAIN
    assert slow_sync.running == 1
    slow_sync.let_end()
    assert slow_sync.cancelled.is_set()
    assert slow_sync.running == 0


def test_a_cancelled_call_settles_its_claim_and_its_repetition_says_so(slow_async: Stage) -> None:
    asyncio.run(cancelled_while_running(slow_async, idempotency_key="key-1"))
    again = asyncio.run(slow_async.keep.call("run_on", {}, idempotency_key="key-1"))
    assert (again.code, again.is_repeated) == (Code.CANCELLED, True)


def test_a_call_cancelled_while_it_waits_for_a_slot_does_not_run_and_is_recorded() -> None:
    async def scenario() -> None:
        started, may_end = asyncio.Event(), asyncio.Event()
        runs: list[int] = []

        @tool
        async def run_on(n: int) -> None:
            """Run until the test lets it end."""
            runs.append(n)
            started.set()
            await may_end.wait()

        record = MemoryRecord()
        keep = Keep(call_limits=CallLimits(tool_concurrency=1), record=lambda: record)
        keep.register(run_on)
        first = asyncio.create_task(keep.call("run_on", {"n": 1}))
        await started.wait()
        second = asyncio.create_task(keep.call("run_on", {"n": 2}))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        last = record.log.entries[-1].record
        assert (last["type"], last["codes"]) == ("ToolInvoked", [Code.CANCELLED.value])
        may_end.set()
        assert (await first).ok
        assert (runs, keep._pipeline.admission.running) == ([1], 0)

    asyncio.run(scenario())


def test_an_outer_time_out_is_a_cancellation_like_any_other(slow_async: Stage) -> None:
    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slow_async.keep.call("run_on", {}), SOON)

    asyncio.run(scenario())
    assert (slow_async.codes(), slow_async.running) == (CHAIN, 0)


class HeldKeep:
    """A keep whose log the test holds, with a quick tool and one that the client executes."""

    def __init__(self, **fields: Any) -> None:
        @tool(**fields)
        async def quick() -> int:
            """Answer at once."""
            self.runs += 1
            return self.runs

        self.runs = 0
        self.record, self.log = MemoryRecord(), HeldLog()
        self.record.log = self.log  # type: ignore[assignment]  # another log of the same Protocol
        self.keep = Keep(record=lambda: self.record)
        asking = {"name": "ask_user", "description": "Ask.", "client_executed": True, **fields}
        self.keep.register(quick, ToolDefinition.from_dict(asking))

    def call(self, name: str) -> "asyncio.Task[ToolResult]":
        return asyncio.create_task(self.keep.call(name, {}, idempotency_key="key-1"))

    async def finished(self, call: "asyncio.Task[ToolResult]") -> ToolResult:
        while not call.done():
            await asyncio.sleep(0)
            self.log.make_durable()
        return await call

    async def cancelled(self, name: str, group: int) -> None:
        """Cancel a call while its first, second … group of records is written."""
        call = self.call(name)
        for _ in range(group):
            await self.log.next_group()
            self.log.make_durable()
        await self.log.next_group()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.finished(call)
        for _ in range(10):
            await asyncio.sleep(0)
            self.log.make_durable()

    def open_claims(self) -> list[str]:
        return [one.state for one in self.record.ledger._claims.values() if one.state != "done"]

    def types(self) -> list[str]:
        return [record["type"] for records in self.log.groups for record in records]


READS = {"side_effects": ["None"]}


@pytest.mark.parametrize(
    ("fields", "group"),
    [(READS, 0), ({}, 0), ({}, 1)],
    ids=["outcome of a reading tool", "intent of a writing tool", "outcome of a writing tool"],
)
def test_a_call_cancelled_while_the_log_is_written_leaves_no_open_claim_and_one_chain(
    fields: dict[str, Any], group: int
) -> None:
    async def scenario() -> HeldKeep:
        held = HeldKeep(**fields)
        await held.cancelled("quick", group)
        return held

    held = asyncio.run(scenario())
    assert (held.open_claims(), held.keep._pipeline.admission.running) == ([], 0)
    assert held.types() == [kind for kind, _ in CHAIN]


def test_a_call_cancelled_before_it_ran_leaves_its_key_free() -> None:
    async def scenario() -> tuple[int, ToolResult]:
        held = HeldKeep()
        await held.cancelled("quick", 0)
        runs = held.runs
        return runs, await held.finished(held.call("quick"))

    runs, again = asyncio.run(scenario())
    assert (runs, again.value, again.is_repeated) == (0, 1, False)


def test_a_call_that_a_keep_ends_before_it_ran_is_recorded_as_cancelled_not_as_unknown() -> None:
    async def scenario() -> list[str]:
        held = HeldKeep()
        held.keep._pipeline._is_ending = lambda: True
        await held.cancelled("quick", 0)
        codes: list[str] = held.log.groups[-1][-1]["codes"]
        return codes

    assert asyncio.run(scenario()) == [Code.CANCELLED.value]


def test_a_call_cancelled_while_its_result_is_recorded_is_remembered_with_that_result() -> None:
    async def scenario() -> ToolResult:
        held = HeldKeep(**READS)
        await held.cancelled("quick", 0)
        return await held.finished(held.call("quick"))

    again = asyncio.run(scenario())
    assert (again.value, again.is_repeated) == (1, True)


@pytest.mark.parametrize("fields", [READS, {}], ids=["reads", "may write"])
def test_a_call_whose_caller_gives_up_just_when_it_is_handed_out_has_one_ending(
    fields: dict[str, Any],
) -> None:
    async def scenario() -> list[str]:
        held = HeldKeep(**fields)
        await held.cancelled("ask_user", 0 if fields else 1)
        return held.types()

    assert asyncio.run(scenario()) == [kind for kind, _ in CHAIN]


def test_a_call_whose_caller_gives_up_just_when_it_is_handed_out_leaves_no_open_claim() -> None:
    async def scenario() -> tuple[list[str], ToolResult]:
        held = HeldKeep(**READS)
        await held.cancelled("ask_user", 0)
        return held.open_claims(), await held.finished(held.call("ask_user"))

    open_claims, again = asyncio.run(scenario())
    assert (open_claims, again.code, again.is_repeated) == ([], Code.CANCELLED, True)


def test_a_repeated_call_whose_caller_gives_up_has_one_ending() -> None:
    async def scenario() -> list[str]:
        held = HeldKeep(**READS)
        assert (await held.finished(held.call("quick"))).ok
        held.log.appended.clear()
        await held.cancelled("quick", 0)
        return held.types()

    assert asyncio.run(scenario()) == [*(kind for kind, _ in CHAIN), "ToolInvoked"]


# --- what does not run at all ------------------------------------------------------------------------


def test_the_context_variables_of_the_caller_reach_a_sync_tool() -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")

    @tool
    def ask() -> str:
        """Say who asks."""
        return who.get()

    keep = Keep()
    keep.register(ask)
    who.set("Ada")
    assert asyncio.run(keep.call("ask", {})).value == "Ada"


def test_a_progress_listener_that_fails_does_not_fail_the_tool() -> None:
    @tool
    async def work(context: ToolContext) -> int:
        """Tell how far it is."""
        context.progress(1, 2)
        return 1

    def broken(*_: Any) -> None:
        raise RuntimeError("the caller's own mistake")

    keep = Keep()
    keep.register(work)
    assert asyncio.run(keep.call("work", {}, on_progress=broken)).value == 1


def test_what_a_person_takes_is_none_of_the_time_of_a_call() -> None:
    async def scenario() -> None:
        slot, answered = Slot(Admission(CallLimits()), ()), asyncio.Event()

        async def run() -> None:
            with slot.pause(), slot.pause():
                await answered.wait()
            await asyncio.Event().wait()

        task = asyncio.create_task(run())
        deadline = asyncio.create_task(execute_module._wait_until_deadline(task, SOON, slot))
        await asyncio.sleep(20 * SOON)
        assert not deadline.done()
        answered.set()
        await deadline  # its own time goes on
        assert not task.done()
        task.cancel()

    asyncio.run(scenario())
