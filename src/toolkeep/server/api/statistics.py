"""Call statistics, counted from the audit log: they survive a restart and cover every process.

The log is read back once as far as needed, then followed. Counts are kept by the minute for a week; of a very
long log, for its newest records only. A server answers from its newest records until the rest is counted.
"""

import asyncio
import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice, takewhile
from typing import Final

import msgspec

from toolkeep.audit.entry import Entry
from toolkeep.errors import ToolkeepError
from toolkeep.keep.keep import Keep
from toolkeep.limits import STATISTICS_RECORDS, STATISTICS_SECONDS
from toolkeep.server.api.recorded_calls import hits_of, outcome_of, title_of
from toolkeep.stores.records import ReadableLog

logger = logging.getLogger("toolkeep.server")

_MINUTE: Final = 60
_CALLS: Final = 10_000
"""Calls whose tool is remembered between their records."""
_BATCH: Final = 100
"""Records that are read or counted in one turn."""
_TIMES: Final = 2_000
"""Durations that are kept of one minute."""
_LISTED: Final = 8
"""Rows of each ranking on the overview page, which shows three of them; the log holds the rest."""
_STEPS: Final = {1: 60, 6: 300, 24: 900, 168: 7_200}
"""How long a point of a line stands for, by how many hours are asked about."""
PERIODS: Final = tuple(_STEPS)
_DAY: Final = 24


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was counted."""

    name: str
    about: str = ""
    calls: int


class StatisticsView(msgspec.Struct, frozen=True, kw_only=True):
    """How calls went, over some hours."""

    hours: int
    step_s: int
    times: list[int]
    """POSIX seconds at which each step begins."""
    ok: list[int]
    failed: list[int]
    refused: list[int]
    p50_ms: list[float | None]
    p95_ms: list[float | None]
    """Of the time that tools ran; null where none did."""
    calls: int
    failures: int
    refusals: int
    median_ms: float | None
    slowest_ms: float | None
    """95 of 100 calls were faster."""
    by_reason: list[Ranked]
    by_tool: list[Ranked]
    by_agent: list[Ranked]
    is_whole: bool
    """Whether the log was read as far back as was asked."""
    is_counting: bool = False
    """Whether older calls are still being counted."""


class CallCounts(msgspec.Struct, kw_only=True):
    """How calls of an agent, to a tool, or of an agent to a tool went over the last week."""

    calls: int = 0
    refused: int = 0
    failed: int = 0
    last_call_at: float = 0.0
    """POSIX seconds; 0 if there was none."""
    refused_at: float = 0.0
    refused_call: str = ""
    """The newest that was refused."""
    refused_code: str = ""

    def count(self, outcome: str, calls: int = 1) -> None:
        """Count calls of one outcome."""
        self.calls += calls
        self.refused += calls if outcome == "refused" else 0
        self.failed += calls if outcome not in ("ok", "refused") else 0

    def add(self, other: "CallCounts") -> None:
        """Count others too."""
        self.calls += other.calls
        self.refused += other.refused
        self.failed += other.failed
        self.last_call_at = max(self.last_call_at, other.last_call_at)
        if other.refused and other.refused_at > self.refused_at:
            self.refused_at = other.refused_at
            self.refused_call, self.refused_code = other.refused_call, other.refused_code


class _Minute:
    """Counts of one minute."""

    __slots__ = (
        "calls",
        "durations",
        "failed",
        "ok",
        "policies",
        "reasons",
        "refused",
    )

    def __init__(self) -> None:
        self.ok = self.failed = self.refused = 0
        self.durations: list[int] = []
        self.reasons: Counter[str] = Counter()
        self.policies: Counter[str] = Counter()
        self.calls: Counter[tuple[str, str, str]] = Counter()
        """By agent, tool and outcome."""


class _Counts:
    """What is counted of a log, from some record on."""

    def __init__(self) -> None:
        self.minutes: OrderedDict[int, _Minute] = OrderedDict()
        self.week: dict[tuple[str, str], CallCounts] = {}
        """The calls of all minutes, by agent and tool."""
        self.since = 0.0
        self._owners: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._unknown: OrderedDict[str, tuple[int, str, str]] = OrderedDict()
        """Minute, tool and agent of calls with an unknown outcome, which a late answer may settle."""
        self._last = -1

    def follow(self, log: ReadableLog, oldest: float, most: int) -> Iterator[int]:
        """Count new records; how many were read or counted, so that others can have a turn."""
        back = islice(log.read_back(), most)
        fresh = takewhile(lambda entry: entry.index > self._last and _time(entry) >= oldest, back)
        held: list[Entry] = []
        while batch := list(islice(fresh, _BATCH)):
            held += batch
            yield len(batch)
        if self._last < 0:
            self.since = _time(held[-1]) if len(held) == most else oldest
        if held:
            self._last = held[0].index
        while held:
            for entry in reversed(held[-_BATCH:]):
                self._count(entry)
            yield len(held[-_BATCH:])
            del held[-_BATCH:]
        for minute in [minute for minute in self.minutes if minute < oldest - _MINUTE]:
            for (agent, tool, outcome), calls in self.minutes.pop(minute).calls.items():
                self.week[agent, tool].count(outcome, -calls)
                if not self.week[agent, tool].calls:
                    del self.week[agent, tool]

    def _count(self, entry: Entry) -> None:
        said = entry.record
        call = str(said.get("call", ""))
        if said.get("tool"):
            self._owners[call] = str(said["tool"]), str(said.get("agent", ""))
            if len(self._owners) > _CALLS:
                self._owners.popitem(last=False)
        if said.get("type") == "PolicyDecision":
            decided = self.minutes.setdefault(_minute(entry), _Minute())
            decided.policies.update(hits_of(said))
        status = said.get("status")
        if status not in ("ok", "error") or not call:
            return
        if said.get("type") == "AnsweredLate" and not (said.get("is_settled") and self._take_back(call)):
            return
        minute = self.minutes.setdefault(_minute(entry), _Minute())
        tool, agent = self._owners.pop(call, ("", ""))
        duration = said.get("execute_us")
        # 0: from the cache, by the client, or a failure that an earlier version recorded without its time.
        if isinstance(duration, int) and duration and len(minute.durations) < _TIMES:
            minute.durations.append(duration)
        codes = [str(code) for code in said.get("codes") or ()]
        outcome = outcome_of(str(said.get("type")), status, codes)
        minute.calls[agent, tool, outcome] += 1
        if outcome == "unknown":
            self._unknown[call] = _minute(entry), tool, agent
            if len(self._unknown) > _CALLS:
                self._unknown.popitem(last=False)
        of_week = self.week.setdefault((agent, tool), CallCounts())
        of_week.count(outcome)
        of_week.last_call_at = at = _time(entry)
        if outcome == "ok":
            minute.ok += 1
        elif outcome == "refused":
            code = codes[0] if codes else ""
            minute.refused += 1
            minute.reasons[code] += 1
            of_week.refused_at, of_week.refused_call, of_week.refused_code = at, call, code
        else:
            minute.failed += 1

    def _take_back(self, call: str) -> bool:
        """Count a call with an unknown outcome no longer, as its outcome follows; whether it was counted."""
        when, tool, agent = self._unknown.pop(call, (0, "", ""))
        if (minute := self.minutes.get(when)) is None:
            return False
        minute.failed -= 1
        minute.calls -= Counter([(agent, tool, "unknown")])
        self.week[agent, tool].count("unknown", -1)
        self._owners[call] = tool, agent
        return True


class Statistics:
    """The statistics of one keep."""

    def __init__(self, clock: Callable[[], float] = time.time, *, at_once: int = STATISTICS_RECORDS) -> None:
        """`at_once` is how many records are read before the first answer; a thread counts the others."""
        self._clock = clock
        self._at_once = at_once
        self._lock = threading.Lock()
        self._counts: _Counts | None = None
        self._stopping = threading.Event()
        self._builder: threading.Thread | None = None

    async def view(self, keep: Keep, hours: int | None) -> StatisticsView:
        """Statistics of a period, after reading new records; None for the one that suits what there is."""
        return await asyncio.to_thread(self._view, keep, hours)

    def _view(self, keep: Keep, hours: int | None) -> StatisticsView:
        with self._lock:
            counts = self._followed(keep)
            return self._summed(counts, hours or self._suiting(counts))

    def by_agent(self, keep: Keep) -> dict[str, CallCounts]:
        """The calls of each agent over the last week, after reading new records."""
        with self._lock:
            return _grouped((agent, one) for (agent, _), one in self._followed(keep).week.items())

    def by_tool(self, keep: Keep, agent: str | None = None) -> dict[str, CallCounts]:
        """The calls to each tool over the last week, of one agent or of all, after reading new records."""
        with self._lock:
            week = self._followed(keep).week.items()
            return _grouped((tool, one) for (by, tool), one in week if agent in (None, by))

    def by_policy(self, keep: Keep) -> dict[str, int]:
        """The decisions of each policy over the last week, after reading new records."""
        found: Counter[str] = Counter()
        with self._lock:
            for minute in self._followed(keep).minutes.values():
                found.update(minute.policies)
        return dict(found)

    @property
    def is_counting(self) -> bool:
        """Whether older calls are still being counted."""
        return self._builder is not None

    def close(self) -> None:
        """Stop counting."""
        self._stopping.set()
        if (builder := self._builder) is not None:
            builder.join()

    def _followed(self, keep: Keep) -> _Counts:
        log = keep.record.log
        counts, is_first = self._counts, self._counts is None
        if counts is None:
            counts = _Counts()
        oldest = self._oldest()
        for _ in counts.follow(log, oldest, self._at_once if is_first else STATISTICS_RECORDS):
            pass
        self._counts = counts
        if is_first and counts.since > oldest and self._at_once < STATISTICS_RECORDS:
            self._builder = threading.Thread(
                target=self._count_all, args=(log,), name="toolkeep-statistics", daemon=True
            )
            self._builder.start()
        return counts

    def _oldest(self) -> float:
        return self._clock() - STATISTICS_SECONDS

    def _count_all(self, log: ReadableLog) -> None:
        counts, is_whole = _Counts(), False
        try:
            began = time.thread_time()
            for _ in counts.follow(log, self._oldest(), STATISTICS_RECORDS):
                # A server that answers calls must not wait for it; the index is made at the same time.
                if self._stopping.wait(3 * (time.thread_time() - began)):
                    return
                began = time.thread_time()
            is_whole = True
        except (ToolkeepError, OSError) as error:
            logger.warning("older calls are not counted", extra={"reason": str(error)})
        finally:
            with self._lock:
                self._counts, self._builder = counts if is_whole else self._counts, None

    def _suiting(self, counts: _Counts) -> int:
        """The shortest period with every call of the last day; the longest if older ones are all there is."""
        begins = {hours: self._span(hours)[0] for hours in PERIODS}
        if counts.since > begins[_DAY]:
            return _DAY  # whether there are older calls is not known yet
        called = [when for when, one in counts.minutes.items() if one.calls]
        first = min((when for when in called if when >= begins[_DAY]), default=None)
        if first is None:
            return PERIODS[-1] if called else PERIODS[0]
        return next(hours for hours, begin in begins.items() if begin <= first)

    def _span(self, hours: int) -> tuple[int, int]:
        """When a period begins and ends; its end is that of a step."""
        step = _STEPS[hours]
        end = int(self._clock()) // step * step + step
        return end - hours * 3600, end

    def _summed(self, counts: _Counts, hours: int) -> StatisticsView:
        step = _STEPS[hours]
        begin, end = self._span(hours)
        steps: list[list[_Minute]] = [[] for _ in range((end - begin) // step)]
        for when, minute in counts.minutes.items():
            if begin <= when < end:
                steps[(when - begin) // step].append(minute)
        every = [minute for held in steps for minute in held]
        durations = sorted(_durations(every))
        return StatisticsView(
            hours=hours,
            step_s=step,
            times=list(range(begin, end, step)),
            ok=[sum(one.ok for one in held) for held in steps],
            failed=[sum(one.failed for one in held) for held in steps],
            refused=[sum(one.refused for one in held) for held in steps],
            p50_ms=[_quantile(sorted(_durations(held)), 0.5) for held in steps],
            p95_ms=[_quantile(sorted(_durations(held)), 0.95) for held in steps],
            calls=sum(one.ok + one.failed + one.refused for one in every),
            failures=sum(one.failed for one in every),
            refusals=sum(one.refused for one in every),
            median_ms=_quantile(durations, 0.5),
            slowest_ms=_quantile(durations, 0.95),
            by_reason=[
                Ranked(name=code, about=title_of(code), calls=count)
                for code, count in _most(pair for one in every for pair in one.reasons.items())
            ],
            by_tool=[
                Ranked(name=name, calls=count)
                for name, count in _most((key[1], calls) for one in every for key, calls in one.calls.items())
            ],
            by_agent=[
                Ranked(name=name, calls=count)
                for name, count in _most((key[0], calls) for one in every for key, calls in one.calls.items())
            ],
            is_whole=counts.since <= begin,
            is_counting=self.is_counting,
        )


def _grouped(counts: Iterable[tuple[str, CallCounts]]) -> dict[str, CallCounts]:
    found: dict[str, CallCounts] = {}
    for name, one in counts:
        found.setdefault(name, CallCounts()).add(one)
    return found


def _most(counts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    total: Counter[str] = Counter()
    for name, calls in counts:
        total[name] += calls
    return [(name, count) for name, count in total.most_common(_LISTED) if name]


def _durations(minutes: Iterable[_Minute]) -> Iterator[int]:
    for minute in minutes:
        yield from minute.durations


def _quantile(durations: list[int], part: float) -> float | None:
    """In milliseconds; `durations` must be sorted."""
    return (
        round(durations[min(int(len(durations) * part), len(durations) - 1)] / 1000, 3) if durations else None
    )


def _minute(entry: Entry) -> int:
    return int(_time(entry)) // _MINUTE * _MINUTE


def _time(entry: Entry) -> float:
    """Timestamp of a record; 0 if it has none."""
    said = entry.record.get("time")
    try:
        return datetime.fromisoformat(said).timestamp() if isinstance(said, str) else 0.0
    except ValueError:
        return 0.0
