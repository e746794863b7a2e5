"""An agent that does what it never did before is told, and nothing else is (FLO-8)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from toolkeep import Keep, open_keep, tool
from toolkeep.audit.entry import Entry
from toolkeep.audit.record_kinds import AgentDrift
from toolkeep.calls import Decision, FlowRecord, ToolCall, ToolResult, refuse
from toolkeep.errors import Code
from toolkeep.events import AgentDrifted, Event
from toolkeep.host.clock import stamp
from toolkeep.keep import drift as drift_module
from toolkeep.keep.drift import FEW, LEARNING_CALLS, LEARNING_S, THINGS, TOLD_S, DriftWatch
from toolkeep.keep.drift_news import SEEN, DriftReader

pytestmark = pytest.mark.spec("FLO-8")

NOW = 1_800_000_000.0
DAY = 86_400.0


class Log:
    """Records, which are read from the newest to the oldest."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self.records = records

    def read_back(self, stop: int | None = None) -> Iterator[Entry]:
        for index, record in reversed(list(enumerate(self.records))):
            yield Entry(index=index, previous="", record=record)


def completed(at: float, tool: str = "read", agent: str = "ada", **decision: Any) -> dict[str, Any]:
    touches = decision.pop("touches", ("fs.read:/notes/a.txt",))
    status = decision.pop("status", "ok")
    codes = decision.pop("codes", ())
    return {
        "type": "ToolCompleted",
        "agent": agent,
        "tool": tool,
        "status": status,
        "codes": codes,
        "time": stamp(at),
        "decision": {"touches": touches, **decision},
    }


def usual(calls: int = LEARNING_CALLS + 1, days: int = 5) -> list[dict[str, Any]]:
    """A log of an agent that reads notes."""
    return [completed(NOW - days * DAY + number * days * DAY / calls) for number in range(calls)]


class Watched:
    """A watch with a log, which hears calls."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self.now = NOW
        self.told: list[AgentDrifted] = []
        self.noted: list[AgentDrift] = []
        self.watch = DriftWatch(Log(records), self._hear, self._note, now=lambda: self.now)
        self.watch.read_baseline()

    def _hear(self, event: Event) -> None:
        assert isinstance(event, AgentDrifted)
        self.told.append(event)

    def _note(self, record: Any) -> None:
        self.noted.append(record)

    def call(self, tool: str = "read", *touches: str, agent: str = "ada", **more: Any) -> None:
        flow = more.pop("flow", None)
        decision = Decision(
            policies=(), policy_set_hash="", request_hash="", capabilities=(), decided_at="",
            touches=touches or ("fs.read:/notes/a.txt",), **({} if flow is None else {"flow": flow}),
        )  # fmt: skip
        self.watch.heard(
            ToolResult(status="ok", tool=tool, call_id="c", agent=agent, decision=decision, **more)
        )

    @property
    def news(self) -> list[tuple[str, tuple[str, ...], int]]:
        return [(one.kind, one.values, one.count) for one in self.told]

    def about(self, kind: str) -> list[tuple[tuple[str, ...], int]]:
        return [(values, count) for other, values, count in self.news if other == kind]


def test_each_kind_of_new_thing_is_told_once() -> None:
    watched = Watched(usual())
    watched.call()
    assert watched.news == []
    flow = FlowRecord(opened=False, secret=False, session="s", origins={"to": ("outside",)})
    for _ in range(2):
        watched.call("send", "fs.write:/out/a.txt", "net.write:new.example (private: 10.0.0.1)", flow=flow)
    assert watched.news == [
        ("tool", ("send",), 1),
        ("folder", ("/out",), 1),
        ("host", ("new.example",), 1),
        ("origin", ("send/to from outside",), 1),
    ]
    assert [one.kind for one in watched.noted] == ["tool", "folder", "host", "origin"]


@pytest.mark.parametrize("records", [usual(calls=LEARNING_CALLS - 2), usual(days=2), []])
def test_nothing_is_told_while_an_agent_is_learned(records: list[dict[str, Any]]) -> None:
    watched = Watched(records)
    watched.call("send")
    assert watched.news == []
    assert LEARNING_S == 3 * DAY


def test_what_did_not_run_makes_nothing_usual_and_is_not_told() -> None:
    never = [
        completed(NOW - DAY, "send", codes=(Code.CIRCUIT_OPEN.value,), status="error"),
        completed(NOW - DAY, "send", status="pending"),
        completed(NOW - 40 * DAY, "send"),  # too long ago
    ]
    watched = Watched([never[2], *usual(), *never[:2]])
    error = refuse(ToolCall(id="c", tool="send", arguments=None, agent="ada"), Code.CIRCUIT_OPEN, "no", "no")
    watched.call("send", error=error)
    watched.call("send", is_repeated=True)
    assert watched.news == []
    watched.call("send")
    assert watched.news == [("tool", ("send",), 1)]


def test_a_flood_is_told_once_a_minute_with_its_number() -> None:
    watched = Watched(usual())
    for number in range(1_000):
        watched.call("read", f"net.read:h{number}.example")
    assert watched.about("host") == [(("h0.example",), 1)]
    watched.now += TOLD_S
    watched.call()
    assert watched.about("host")[1:] == [(tuple(f"h{number}.example" for number in range(1, 6)), 999)]


def test_a_flood_hides_nothing_that_comes_after_it_and_fills_no_memory() -> None:
    watched = Watched(usual())
    for number in range(THINGS + 10):
        watched.call("read", f"net.read:h{number}.example")
    watched.now += TOLD_S
    watched.call()
    watched.call("read", "net.read:late.example")
    assert watched.about("host")[-1] == (("late.example",), 1)
    assert len(watched.watch._agents["ada"].things["host"]) == THINGS


def test_ten_times_the_busiest_day_is_told_once_a_day() -> None:
    watched = Watched(usual(calls=116, days=29))  # four calls a day
    for _ in range(100):
        watched.call()
    assert watched.news == [("measure", ("read: 41 calls today, 4 on the busiest day",), 1)]
    watched.now += DAY
    for _ in range(FEW):
        watched.call("other")
    assert watched.about("measure") == [(("read: 41 calls today, 4 on the busiest day",), 1)]


def test_ten_times_the_highest_measure_is_told() -> None:
    flow = {"opened": False, "secret": False, "session": "s", "origins": {}, "measures": {"paid": "10.0000"}}
    watched = Watched([*usual(), completed(NOW - DAY, flow=flow)])

    def paid(amount: str) -> FlowRecord:
        return FlowRecord(opened=False, secret=False, session="s", origins={}, measures={"paid": amount})

    watched.call(flow=paid("99.0000"))
    assert watched.news == []
    watched.call(flow=paid("5000.0000"))
    assert watched.news == [("measure", ("paid: 5000, 99 at most before",), 1)]


def test_values_are_short_and_hidden_ones_are_left_out() -> None:
    watched = Watched(usual())
    watched.call("read", "net.read:(hidden)", "net.read:" + "x" * 5_000)
    ((_, (value,), _),) = watched.news
    assert len(value) == 200


def test_calls_that_end_before_the_log_was_read_are_judged_too() -> None:
    watched = Watched([])
    records = usual()
    watched.watch = DriftWatch(Log(records), watched._hear, watched._note, now=lambda: watched.now)
    watched.call("send")
    watched.watch.close()
    assert watched.news == [("tool", ("send",), 1)]


def test_a_call_goes_on_if_the_watch_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(usual())

    def fails(_: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(drift_module, "_things", fails)
    watched.call("send")
    assert watched.news == []


# --- in a keep -----------------------------------------------------------------------------------


@tool(effects="reads")
def look() -> int:
    """Look."""
    return 1


@tool(effects="reads")
def stare() -> int:
    """Stare."""
    return 1


def test_a_keep_tells_records_and_forgets_it_once_a_person_has_seen_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift_module, "LEARNING_CALLS", 2)
    monkeypatch.setattr(drift_module, "LEARNING_S", 0.0)
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent/config.yml").write_text("drift: true\n")
    with open_keep(project=tmp_path, built_in=False) as keep:
        heard: list[Event] = []
        keep.subscribe(heard.append)
        keep.register(look, stare)
        for _ in range(3):
            keep.call_sync("look", {})
        watch = keep._pipeline._drift
        assert watch is not None
        assert watch._reader is not None
        watch._reader.join()
        assert keep.call_sync("stare", {}).ok
        keep.call_sync("look", {})
        log = keep.record.log
        assert [one.kind for one in heard if isinstance(one, AgentDrifted)] == ["tool"]
        (news,) = DriftReader().open(log)
        assert (news.agent, news.kind, news.values) == ("local", "tool", ("stare",))
    change = {"type": "OperatorChange", "what": SEEN, "name": "local", "difference": news.time}
    assert DriftReader().open(Log([{"type": "AgentDrift", **msgspec.to_builtins(news)}])) == [news]
    assert DriftReader().open(Log([{"type": "AgentDrift", **msgspec.to_builtins(news)}, change])) == []


def test_nothing_watches_unless_it_is_switched_on() -> None:
    with Keep() as keep:
        keep.register(look)
        keep.call_sync("look", {})
        assert keep._pipeline._drift is None
