"""Tells when an agent does what it never did before (FLO-8): a tool, host, folder, origin, far more calls.

In come the calls that ran, first those of the log (the baseline, read in a thread once the first call ended),
then each call after its result; out go `AgentDrifted` events, which are recorded too. It decides nothing: a
new thing is already done. What an attacker did while an agent was being learned counts as usual.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Final, Literal

import msgspec

from toolkeep.audit.entry import Entry
from toolkeep.audit.record_kinds import AgentDrift, Record
from toolkeep.calls import ToolResult
from toolkeep.errors import NOT_BEGUN
from toolkeep.events import AgentDrifted, Event
from toolkeep.host import clock
from toolkeep.stores.records import ReadableLog
from toolkeep.text.display import HIDDEN, shorten

log = logging.getLogger("toolkeep.drift")

LEARNING_CALLS: Final = 100
LEARNING_S: Final = 3 * 86_400.0
"""Before an agent has made so many calls over so long a time, everything that it does is taken for usual."""
BASELINE_S: Final = 30 * 86_400.0
BASELINE_RECORDS: Final = 100_000
"""The newest records that are looked through at start, about a second; and how old they may be."""
THINGS: Final = 2_000
"""Things of one kind that are remembered of an agent. More are told each time: a flood hides nothing."""
AGENTS: Final = 1_000
TIMES: Final = 10
"""So many times as much as on any day before is told."""
FEW: Final = 20
"""Calls of a tool on one day that are no news, however few there were before."""
TOLD_S: Final = 60.0
"""After the first new thing of a kind, others are told together, once so much time has passed."""
_NAMED: Final = 5
_VALUE_CHARS: Final = 200
"""Of a value that is told: it may be an attacker's, and goes to a webhook."""
_FAMILIAR: Final = 10_000
_WAITING: Final = 1_000
_DAY: Final = 86_400

Kind = Literal["tool", "host", "folder", "origin", "measure"]


class _Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A call that ran."""

    agent: str
    tool: str
    touches: tuple[str, ...]
    origins: tuple[tuple[str, tuple[str, ...]], ...] = ()
    measures: Mapping[str, str] = {}
    at: float

    @property
    def key(self) -> object:
        """What tells apart calls that show different things."""
        return self.agent, self.tool, self.touches, self.origins


class _Agent:
    """What is known of one agent."""

    __slots__ = ("calls", "days", "highest", "since", "things")

    def __init__(self) -> None:
        self.calls = 0
        self.since = float("inf")
        self.things: dict[str, set[str]] = {}
        """By kind."""
        self.days: dict[str, dict[int, int]] = {}
        """Calls by tool and day."""
        self.highest: dict[str, float] = {}
        """Of each measure that policies read."""

    def is_learned(self, at: float) -> bool:
        return self.calls > LEARNING_CALLS and at - self.since >= LEARNING_S


class _Held(msgspec.Struct):
    """New things that are told together."""

    until: float
    count: int = 0
    tool: str = ""
    values: list[str] = msgspec.field(default_factory=list)


class DriftWatch:
    """Watches the calls of one keep."""

    def __init__(
        self,
        log: ReadableLog,
        tell: Callable[[Event], None],
        note: Callable[[Record], object],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`tell` publishes, and `note` records; the log is read once the first call ended."""
        self._log = log
        self._tell = tell
        self._note = note
        self._now = now
        self._began = now()
        self._lock = threading.Lock()
        self._agents: dict[str, _Agent] = {}
        self._familiar: set[object] = set()
        """Calls that show nothing new: most of them."""
        self._waiting: deque[_Ran] = deque(maxlen=_WAITING)
        """Calls that ended before the baseline was read."""
        self._reader: threading.Thread | None = None
        self._is_ready = False
        self._held: dict[tuple[str, Kind], _Held] = {}
        self._out: list[AgentDrift] = []
        """What is told once the lock is free: a listener may make a call."""

    def heard(self, result: ToolResult) -> None:
        """Look at a call that ended; whatever fails here, the call goes on."""
        decision = result.decision
        if decision is None or result.status == "pending" or result.is_repeated:
            return
        if result.error is not None and not NOT_BEGUN.isdisjoint([one.code for one in result.error.errors]):
            return
        flow = decision.flow
        ran = _Ran(
            agent=result.agent,
            tool=result.tool,
            touches=decision.touches,
            origins=tuple(flow.origins.items()) if flow else (),
            measures=(flow.measures or {}) if flow else {},
            at=self._now(),
        )
        try:
            with self._lock:
                if self._is_ready:
                    self._judge(ran)
                else:
                    self._wait(ran)
                out, self._out = self._out, []
            for drift in out:
                self._note(drift)
                self._publish(drift)
        except Exception:
            log.exception("a call could not be compared with what its agent usually does")

    def read_baseline(self) -> None:
        """Learn from the log what was done before this process began."""
        oldest = self._began - BASELINE_S
        try:
            for entry in islice(self._log.read_back(), BASELINE_RECORDS):
                ran = _recorded(entry)
                if ran is None or ran.at >= self._began:
                    continue
                if ran.at < oldest:
                    break
                with self._lock:
                    self._learn(ran)
        except Exception:  # what was read by then has to do
            log.exception("what agents usually do could not be read from the log")
        with self._lock:
            self._is_ready = True

    def close(self) -> None:
        """Tell what is held."""
        if self._reader is not None:
            self._reader.join()
        with self._lock:
            while self._waiting and self._is_ready:
                self._look(self._waiting.popleft())
            self._tell_held(float("inf"))
            out, self._out = self._out, []
        for drift in out:  # not recorded: nothing is written any more
            self._publish(drift)

    # --- with the lock ---------------------------------------------------------------------------

    def _wait(self, ran: _Ran) -> None:
        self._waiting.append(ran)
        if self._reader is None:
            # A daemon: a long log must not keep the interpreter from exiting.
            self._reader = threading.Thread(target=self.read_baseline, name="toolkeep-drift", daemon=True)
            self._reader.start()

    def _judge(self, ran: _Ran) -> None:
        while self._waiting:
            self._look(self._waiting.popleft())
        self._look(ran)
        if self._held:
            self._tell_held(ran.at)

    def _look(self, ran: _Ran) -> None:
        agent = self._agent(ran)
        if agent is None:
            return
        self._count(agent, ran)
        key = ran.key
        if key in self._familiar:
            return
        is_learned = agent.is_learned(ran.at)
        is_kept = True
        for kind, value in _things(ran):
            known = agent.things.setdefault(kind, set())
            if value in known:
                continue
            if len(known) < THINGS:
                known.add(value)
            else:
                is_kept = False
            if is_learned:
                self._hold(ran, kind, value)
        if is_kept:
            if len(self._familiar) >= _FAMILIAR:
                self._familiar.clear()
            self._familiar.add(key)

    def _learn(self, ran: _Ran) -> None:
        agent = self._agent(ran)
        if agent is None:
            return
        days = agent.days.setdefault(ran.tool, {})
        day = int(ran.at) // _DAY
        days[day] = days.get(day, 0) + 1
        for name, value in ran.measures.items():
            agent.highest[name] = max(agent.highest.get(name, 0.0), float(value))
        for kind, thing in _things(ran):
            known = agent.things.setdefault(kind, set())
            if len(known) < THINGS:
                known.add(thing)

    def _agent(self, ran: _Ran) -> _Agent | None:
        agent = self._agents.get(ran.agent)
        if agent is None:
            if len(self._agents) >= AGENTS:
                return None
            agent = self._agents[ran.agent] = _Agent()
        agent.calls += 1
        agent.since = min(agent.since, ran.at)
        return agent

    def _count(self, agent: _Agent, ran: _Ran) -> None:
        """Compare with the days before, and measures with the highest that was seen."""
        days, day = agent.days.setdefault(ran.tool, {}), int(ran.at) // _DAY
        count = days[day] = days.get(day, 0) + 1
        if count > FEW and len(days) > 1:
            usual = max(number for other, number in days.items() if other != day)
            if count == TIMES * usual + 1 or (count == FEW + 1 and count > TIMES * usual):
                self._tell_measure(agent, ran, f"{ran.tool}: {count} calls today, {usual} on the busiest day")
        if len(days) > 31:
            del days[min(days)]
        for name, said in ran.measures.items():
            value, highest = float(said), agent.highest.get(name, 0.0)
            if value > highest:
                agent.highest[name] = value
                if highest and value > TIMES * highest:
                    self._tell_measure(agent, ran, f"{name}: {value:g}, {highest:g} at most before")

    def _tell_measure(self, agent: _Agent, ran: _Ran, what: str) -> None:
        if agent.is_learned(ran.at):
            self._hold(ran, "measure", what)

    def _hold(self, ran: _Ran, kind: Kind, value: str) -> None:
        """Tell the first of a kind at once, and others with their number once a minute."""
        shown = shorten(value, _VALUE_CHARS)
        held = self._held.get((ran.agent, kind))
        if held is None:
            self._held[ran.agent, kind] = _Held(until=ran.at + TOLD_S)
            self._put(ran.agent, kind, ran.tool, 1, (shown,))
            return
        held.count += 1
        held.tool = ran.tool
        if len(held.values) < _NAMED:
            held.values.append(shown)

    def _tell_held(self, at: float) -> None:
        for (agent, kind), held in list(self._held.items()):
            if held.until <= at:
                del self._held[agent, kind]
                if held.count:
                    self._put(agent, kind, held.tool, held.count, tuple(held.values))

    def _put(self, agent: str, kind: Kind, tool: str, count: int, values: tuple[str, ...]) -> None:
        time_ = clock.stamp(self._now())
        self._out.append(
            AgentDrift(agent=agent, count=count, kind=kind, time=time_, tool=tool, values=values)
        )

    # --- without it ------------------------------------------------------------------------------

    def _publish(self, drift: AgentDrift) -> None:
        self._tell(
            AgentDrifted(
                agent=drift.agent,
                kind=drift.kind,
                tool_name=drift.tool,
                values=drift.values,
                count=drift.count,
                timestamp=datetime.fromisoformat(drift.time),
            )
        )


def _things(ran: _Ran) -> Iterable[tuple[Kind, str]]:
    yield "tool", ran.tool
    for touch in ran.touches:
        kind, _, text = touch.partition(":")
        text = text.partition(" (private: ")[0]
        if text == HIDDEN:
            continue
        if kind.startswith("net."):
            yield "host", text
        elif kind.startswith("fs."):
            yield "folder", text.rpartition("/")[0] or "/"
    for name, origins in ran.origins:
        for origin in origins:
            yield "origin", f"{ran.tool}/{name} from {origin}"


def _recorded(entry: Entry) -> _Ran | None:
    """A call that ran, as the log tells of it; None for any other record."""
    said: Mapping[str, Any] = entry.record
    decision = said.get("decision")
    if said.get("type") != "ToolCompleted" or not isinstance(decision, dict) or said["status"] == "pending":
        return None
    if not NOT_BEGUN.isdisjoint(said["codes"]):
        return None
    flow = decision.get("flow") or {}
    return _Ran(
        agent=said["agent"],
        tool=said["tool"],
        touches=tuple(decision.get("touches", ())),
        origins=tuple((name, tuple(origins)) for name, origins in flow.get("origins", {}).items()),
        measures=flow.get("measures", {}),
        at=datetime.fromisoformat(said["time"]).timestamp(),
    )
