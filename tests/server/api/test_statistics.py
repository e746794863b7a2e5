"""Counts of calls, from the log."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.server.talk import served
from toolkeep import Keep, open_keep, tool
from toolkeep.errors import Code
from toolkeep.host.clock import stamp
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.server.api.statistics import Statistics

UNKNOWN = {"codes": [Code.OUTCOME_UNKNOWN]}
LATE = {"type": "AnsweredLate", "is_settled": True}


@tool(side_effects=["None"])
def half(number: int) -> float:
    """Half of a number.

    Args:
        number: Not zero.
    """
    if not number:
        raise ValueError("nothing to halve")
    return number / 2


def made(project: Path) -> Any:
    keep = open_keep(project=project)
    keep.register(half)
    return keep


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "state"))
    project = tmp_path / "project"
    project.mkdir()
    return project


def call(keep: Any) -> None:
    for number in (2, 4, 0, "x"):
        keep.call_sync("half", {"number": number}, agent="operator")


def totals(keep: Any, statistics: Statistics) -> tuple[int, int, int, int]:
    view = asyncio.run(statistics.view(keep, 24))
    assert sum(view.ok) + sum(view.failed) + sum(view.refused) == view.calls
    return view.calls, sum(view.ok), view.failures, view.refusals


@pytest.mark.spec("WEB-2")
def test_what_went_well_failed_and_was_refused_is_counted_apart(project: Path) -> None:
    with made(project) as keep:
        call(keep)
        view = asyncio.run(Statistics().view(keep, 24))
    assert (view.calls, sum(view.ok), view.failures, view.refusals) == (4, 2, 1, 1)
    assert [(one.name, one.calls) for one in view.by_reason] == [("ACODE-TSR-004", 1)]
    assert [(one.name, one.calls) for one in view.by_tool] == [("half", 4)]
    assert [(one.name, one.calls) for one in view.by_agent] == [("operator", 4)]
    assert view.median_ms is not None


@pytest.mark.parametrize(
    ("later", "failed", "refused"),
    [
        ([{"codes": [Code.TOOL_FAILED]}], 1, 0),
        ([UNKNOWN], 1, 0),
        ([{"codes": [Code.CIRCUIT_OPEN]}], 0, 1),
        ([{"type": "Approval", "codes": [Code.CANCELLED]}], 0, 1),
        ([UNKNOWN, {**LATE, "status": "ok"}], 0, 0),
        ([UNKNOWN, {**LATE, "codes": [Code.TOOL_FAILED]}], 1, 0),
        ([UNKNOWN, {**LATE, "codes": [Code.CANCELLED], "is_settled": False}], 1, 0),
        ([{"status": "ok"}, {**LATE, "status": "ok", "is_settled": False}], 0, 0),
    ],
)
def test_a_call_counts_once_and_as_the_list_of_calls_tells_it(
    later: list[dict[str, Any]], failed: int, refused: int
) -> None:
    keep = Keep()
    ended = {"type": "ToolCompleted", "status": "error"}
    said = ({"type": "ToolInvoked", "tool": "half", "agent": "ada"}, *({**ended, **one} for one in later))
    of_call = {"call": "1" * 32, "time": stamp(time.time())}

    async def append() -> None:
        await keep.record.log.append_soon(*(canonical_bytes({**one, **of_call}) for one in said))

    asyncio.run(append())
    for counted in (Statistics().by_tool(keep), Statistics().by_agent(keep)):
        (one,) = counted.values()
        assert (one.calls, one.failed, one.refused) == (1, failed, refused)


def test_a_failed_call_counts_with_the_time_that_it_took(project: Path) -> None:
    with made(project) as keep:
        keep.call_sync("half", {"number": 0}, agent="operator")
        view = asyncio.run(Statistics().view(keep, 24))
    assert view.median_ms


def test_counts_survive_a_restart_and_go_on(project: Path) -> None:
    statistics = Statistics()
    with made(project) as keep:
        call(keep)
        assert totals(keep, statistics)[0] == 4
        call(keep)
        assert totals(keep, statistics) == (8, 4, 2, 2)
    with made(project) as keep:
        assert totals(keep, Statistics()) == (8, 4, 2, 2)


def test_calls_of_an_agent_are_counted_by_tool_with_the_newest_refusal_for_a_week(project: Path) -> None:
    now = time.time()
    statistics = Statistics(lambda: now)
    with made(project) as keep:
        call(keep)
        keep.call_sync("quarter", {}, agent="ada")
        refused = keep.call_sync("half", {"number": "y"}, agent="operator")
        (half,) = statistics.by_tool(keep, "operator").values()
        assert (half.calls, half.refused, half.failed) == (5, 2, 1)
        assert (half.refused_call, half.refused_code) == (refused.call_id, "ACODE-TSR-004")
        assert half.refused_at == half.last_call_at
        assert {name: one.calls for name, one in statistics.by_tool(keep).items()} == {
            "half": 5,
            "quarter": 1,
        }
        now += 8 * 86_400
        assert statistics.by_tool(keep) == statistics.by_agent(keep) == {}


def test_what_is_older_than_was_asked_about_does_not_count(project: Path) -> None:
    with made(project) as keep:
        call(keep)
        later = Statistics(lambda: time.time() + 7200)
        assert asyncio.run(later.view(keep, 1)).calls == 0
        assert asyncio.run(later.view(keep, 6)).calls == 4


def test_the_shortest_period_with_all_calls_of_the_day_suits_them(project: Path) -> None:
    def suits(after_hours: float) -> int:
        later = Statistics(lambda: time.time() + after_hours * 3600)
        return asyncio.run(later.view(keep, None)).hours

    with made(project) as keep:
        assert suits(0) == 1
        call(keep)
        assert [suits(hours) for hours in (0, 0.9, 1.1, 5.5, 6.5, 23.5)] == [1, 1, 6, 6, 24, 24]
        assert [suits(hours) for hours in (25, 160, 200)] == [168, 168, 1]


def test_the_api_gives_the_same_counts(project: Path) -> None:
    async def run() -> Any:
        with made(project) as keep:
            await asyncio.to_thread(call, keep)
            async with served(keep) as client:
                reader = client.as_agent("ada", "call")
                refused = (await reader.get("/v1/audit:statistics")).status
                return (await client.get("/v1/audit:statistics?hours=1")).data, refused

    data, refused = asyncio.run(run())
    assert (data["calls"], data["failures"], data["hours"], refused) == (4, 1, 1, 403)


def test_a_server_answers_from_the_newest_records_until_the_others_are_counted(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made(project) as keep:
        for _ in range(4):
            call(keep)
        held, log = threading.Event(), keep.record.log
        read_back = log.read_back

        def patiently(*given: Any) -> Any:
            if threading.current_thread().name == "toolkeep-statistics":
                held.wait()
            return read_back(*given)

        monkeypatch.setattr(log, "read_back", patiently)
        statistics = Statistics(at_once=12)
        first = asyncio.run(statistics.view(keep, 24))
        assert (first.is_whole, first.is_counting) == (False, True)
        assert 0 < first.calls < 16
        assert asyncio.run(statistics.view(keep, None)).hours == 24  # what is older is not known yet
        call(keep)
        assert asyncio.run(statistics.view(keep, 24)).calls == first.calls + 4
        held.set()
        statistics._builder.join()  # type: ignore[union-attr]  # it counts
        whole = asyncio.run(statistics.view(keep, 24))
        assert (whole.calls, whole.is_counting) == (20, False)
        assert whole == asyncio.run(Statistics().view(keep, 24))
        statistics.close()
