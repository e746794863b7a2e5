"""What workers do beside answering in time: recorded, told, and a late answer settles its call (SCL-3, SCL-4)."""

import asyncio
from typing import Any, cast

import pytest

from toolkeep import Keep, ToolResult, tool
from toolkeep.calls import RecordedCall, RegisteredTool
from toolkeep.config.fleet_settings import TrustedWorker
from toolkeep.errors import Code
from toolkeep.events import Event, RefusedElsewhere, WorkerAnsweredLate, WorkerRefused
from toolkeep.execution.runner import RunRefused
from toolkeep.fleet import dispatcher
from toolkeep.fleet.dispatcher import Ran, Refused
from toolkeep.fleet.fleet_runner import FleetReports, Samples
from toolkeep.fleet.messages import Answer, Failure
from toolkeep.keep import refusal_counts
from toolkeep.keep.fleet_records import FleetRecords
from toolkeep.stores.records import MemoryRecord

pytestmark = pytest.mark.spec("SCL-4")

WORKER = TrustedWorker(name="one", key="ed25519:key")
VALUE = Answer("c.0", "none", ("landlock",), b'"done"')
CANCELLED = Answer("c.0", "", (), failure=Failure("", "", is_cancelled=True))
FAILED = Answer("c.0", "", (), failure=Failure(Code.TOOL_FAILED.value, "The disk is full"))


class LostWorkers:
    """Workers that are gone when they have a call; `answered` comes before the call has ended."""

    sample = 0.0

    def __init__(self, answered: Answer | None = None) -> None:
        self.reports: FleetReports
        self.ran: list[str] = []
        self._answered = answered

    def report_to(self, reports: FleetReports, _: Samples) -> None:
        self.reports = reports

    def runs(self, _: RegisteredTool) -> bool:
        return True

    def isolation(self, _: RegisteredTool) -> str:
        return "strict"

    def enforced(self, _: RegisteredTool) -> tuple[str, ...]:
        return ()

    async def run(self, call: RecordedCall, *_: object) -> Any:
        self.ran.append(call.request.id)
        if self._answered is not None:
            self.answer(self._answered)
        raise RunRefused(Code.OUTCOME_UNKNOWN, "Its worker is gone")

    def answer(self, answer: Answer) -> None:
        body = answer.body if isinstance(answer.body, bytes) else b""
        self.reports.late(self.ran[-1], Ran(answer, WORKER, "5e55", "a5", body))

    async def close(self) -> None:
        """Nothing is open."""


@tool(effects="writes", danger="low")
def deploy(place: str) -> str:
    """Put it there."""
    raise AssertionError(place)


Made = tuple[list[ToolResult], list[dict[str, Any]], list[Event]]


def made(workers: LostWorkers, *answers: Answer) -> Made:
    """Two calls with one key, and late answers in between: their results, what is recorded and told."""
    record, told, results = MemoryRecord(), list[Event](), list[ToolResult]()

    async def use() -> None:
        async with Keep(record=record, fleet=lambda _: workers) as keep:  # type: ignore[arg-type,return-value]
            keep.register(deploy)
            keep.subscribe(told.append)
            results.append(await keep.call("deploy", {"place": "x"}, idempotency_key="once"))
            for answer in answers:
                workers.answer(answer)
            await fleet_records_of(keep).close()
            results.append(await keep.call("deploy", {"place": "x"}, idempotency_key="once"))

    asyncio.run(use())
    records = [entry.record for entry in record.log.entries]
    return results, [one for one in records if one["type"] == "AnsweredLate"], told


def fleet_records_of(keep: Keep) -> FleetRecords:
    return cast("FleetRecords", keep._pipeline._fleet_records)


@pytest.mark.parametrize("is_early", [False, True])
def test_a_late_answer_is_what_a_call_with_the_same_key_gets(*, is_early: bool) -> None:
    workers = LostWorkers(VALUE if is_early else None)
    (lost, again), (late,), told = made(workers, *(() if is_early else (VALUE,)))
    assert (lost.code, again.status, again.value, again.is_repeated) == (
        Code.OUTCOME_UNKNOWN, "ok", "done", True,
    )  # fmt: skip
    assert len(workers.ran) == 1
    assert late == {
        "answer_hash": "a5", "call": lost.call_id, "codes": [], "enforced": ["landlock"], "is_settled": True,
        "isolation": "none", "key": WORKER.key, "result_hash": again.hash, "session": "5e55", "status": "ok",
        "time": late["time"], "type": "AnsweredLate", "worker": "one",
    }  # fmt: skip
    (event,) = [one for one in told if isinstance(one, WorkerAnsweredLate)]
    assert (event.worker, event.status, event.is_settled) == ("one", "ok", True)


@pytest.mark.parametrize(("answer", "code"), [(CANCELLED, Code.OUTCOME_UNKNOWN), (FAILED, Code.TOOL_FAILED)])
def test_a_late_failure_settles_a_call_unless_the_worker_ended_it(answer: Answer, code: Code) -> None:
    (_, again), (late,), _ = made(LostWorkers(), answer)
    assert (again.code, late["status"]) == (code, "error")
    assert late["is_settled"] is (answer is FAILED)


def test_an_answer_to_a_call_that_ran_elsewhere_again_is_recorded() -> None:
    _, late, _ = made(LostWorkers(), VALUE, FAILED)
    assert sorted((one["is_settled"], one["status"]) for one in late) == [(False, "error"), (True, "ok")]


@pytest.mark.spec("SCL-3")
def test_refused_frames_are_told_at_once_and_then_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusal_counts, "_KINDS", 3)
    record, told, workers = MemoryRecord(), list[Event](), LostWorkers()
    flood = [Refused("one", "its seal is broken")] * 3 + [Refused("", f"kind {one}") for one in range(10)]

    async def use() -> None:
        async with Keep(record=record, fleet=lambda _: workers) as keep:  # type: ignore[arg-type,return-value]
            keep.subscribe(told.append)
            fleet_records_of(keep)
            for refused in flood:
                workers.reports.refused(refused)
            await fleet_records_of(keep).close()

    asyncio.run(use())
    counted = [
        ("one", "its seal is broken", 1), ("", "kind 0", 1), ("", "kind 1", 1), ("", "of many other kinds", 1),
        ("one", "its seal is broken", 2), ("", "of many other kinds", 7),
    ]  # fmt: skip
    assert [(one.worker, one.reason, one.count) for one in told if isinstance(one, WorkerRefused)] == counted
    records = [entry.record for entry in record.log.entries if entry.record["type"] == "WorkerRefused"]
    assert [(one["worker"], one["reason"], one["count"]) for one in records] == counted


@pytest.mark.spec("SCL-3")
def test_what_a_worker_refused_counts_once_whatever_session_tells_it() -> None:
    """Each session with a process of a worker tells the same numbers; another process begins anew."""
    record, told, workers = MemoryRecord(), list[Event](), LostWorkers()
    said = [(b"1", 3), (b"1", 3), (b"1", 5), (b"2", 4), (b"2", 4)]

    async def use() -> None:
        async with Keep(record=record, fleet=lambda _: workers) as keep:  # type: ignore[arg-type,return-value]
            keep.subscribe(told.append)
            fleet_records_of(keep)
            for process, count in said:
                workers.reports.refused_elsewhere(
                    dispatcher.RefusedElsewhere(
                        WORKER, "frame", "its seal is broken", process=process, count=count
                    )
                )

    asyncio.run(use())
    assert [one.count for one in told if isinstance(one, RefusedElsewhere)] == [3, 4, 2]
    records = [entry.record for entry in record.log.entries if entry.record["type"] == "RefusedElsewhere"]
    assert [(one["worker"], one["key"], one["count"]) for one in records] == [
        ("one", WORKER.key, 3),
        ("one", WORKER.key, 4),
        ("one", WORKER.key, 2),
    ]
