"""What agents did in recorded sessions, as far as it may become policy (FLO-8).

In come the steps of a fold over a log (`flow/recorded_sessions.py`); out goes for each agent and tool what
its calls used, with the calls that show it. Whoever could write into a session may have chosen it, so

- only calls that ran and succeeded count: what was refused, denied or failed widens nothing;
- a host or folder counts only if the user or a service named it, if a person approved the call and no result
  had brought it, or if it was chosen before the session had read anything;
- a measure counts as high as two sessions (or two days) reached, so that one alone raises nothing.
"""

import os
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.vocabulary import Role, TouchForm
from toolkeep.flow.flow_plan import Plan, make_plan
from toolkeep.flow.measures import BUILT_IN, MEASURES, Measure
from toolkeep.flow.recorded_sessions import RecordedSessions, Step
from toolkeep.flow.session_state import Origin
from toolkeep.policy.touched_resources import TouchPlan
from toolkeep.text.display import HIDDEN

FEW_CALLS: Final = 5
"""What fewer calls show, or one session alone, is marked: chance or an attacker may have made it."""
VALUES: Final = 200
"""Hosts or folders of one tool; with more there is nothing narrow about them."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,55}")
_SESSIONS: Final = 1_000
"""Sessions that one count tells apart."""
TRUSTED: Final = frozenset({Origin.USER.value, Origin.SYSTEM.value})


class Evidence(msgspec.Struct):
    """The recorded calls that show something."""

    calls: int = 0
    last_at: str = ""
    last_call: str = ""
    seen_in: set[str] = msgspec.field(default_factory=set)

    @property
    def sessions(self) -> int:
        """In how many sessions."""
        return len(self.seen_in)

    @property
    def is_weak(self) -> bool:
        """Whether too little shows it."""
        return self.calls < FEW_CALLS or self.sessions < 2

    def add(self, step: Step) -> None:
        """Count a call."""
        self.calls += 1
        self.last_at, self.last_call = step.call.time, step.call.call
        if len(self.seen_in) < _SESSIONS:
            self.seen_in.add(_session(step))


class Named(msgspec.Struct):
    """Hosts or folders that calls named."""

    known: dict[str, Evidence] = msgspec.field(default_factory=dict)
    """Those that an outsider cannot have chosen."""
    others: Evidence = msgspec.field(default_factory=Evidence)
    """Calls that named what an outsider may have chosen: they are counted, and their values are not kept."""
    is_full: bool = False

    def add(self, value: str, step: Step) -> None:
        """Count a call that named this value, which is trusted."""
        if value not in self.known and len(self.known) >= VALUES:
            self.is_full = True
            return
        self.known.setdefault(value, Evidence()).add(step)


class ToolUse(msgspec.Struct, kw_only=True):
    """How an agent used one tool."""

    tool: RegisteredTool
    plan: Plan | None = None
    """None if the definition is another one by now: then only that it was used is known."""
    calls: Evidence = msgspec.field(default_factory=Evidence)
    watched: Evidence = msgspec.field(default_factory=Evidence)
    """Calls of which the log holds the origins of arguments."""
    origins: dict[str, dict[str, Evidence]] = msgspec.field(default_factory=dict)
    """Of these, by argument with authority and origin."""
    hosts: Named = msgspec.field(default_factory=Named)
    folders: dict[str, Named] = msgspec.field(default_factory=dict)
    """By argument."""
    example: Mapping[str, Any] | None = None
    """The arguments of the newest call in which the user or a service named everything."""


class Peaks(msgspec.Struct):
    """How high a measure was in each session, or on each day of the agent."""

    measure: Measure
    highest: dict[str, int] = msgspec.field(default_factory=dict)
    """By session or day, in ten-thousandths."""
    window: deque[tuple[float, int]] = msgspec.field(default_factory=deque)
    total: int = 0
    evidence: Evidence = msgspec.field(default_factory=Evidence)

    @property
    def usual(self) -> int:
        """What two sessions or days reached; with one alone, what that one reached."""
        ordered = sorted(self.highest.values(), reverse=True)
        return ordered[:2][-1] if ordered else 0

    def add(self, step: Step, value: int, now: float) -> None:
        """Count a call that adds this much."""
        over_s = self.measure.over_s
        if over_s is None:
            at, reached = _session(step), self.highest.get(_session(step), 0) + value
        else:
            self.window.append((now, value))
            self.total += value
            while self.window[0][0] <= now - over_s:
                self.total -= self.window.popleft()[1]
            at, reached = step.call.time[:10], self.total
        if at in self.highest or len(self.highest) < _SESSIONS:
            self.highest[at] = max(reached, self.highest.get(at, 0))
        self.evidence.add(step)


class AgentUse(msgspec.Struct, kw_only=True):
    """What one agent did."""

    calls: Evidence = msgspec.field(default_factory=Evidence)
    opened: Evidence = msgspec.field(default_factory=Evidence)
    """Calls that may write, after text from outside was read."""
    tools: dict[str, ToolUse] = msgspec.field(default_factory=dict)
    peaks: dict[str, Peaks] = msgspec.field(default_factory=dict)


class _Running(msgspec.Struct):
    """A call whose outcome is not known yet."""

    step: Step
    origins: Mapping[str, Collection[str]]
    """By argument; of a call without a plan, none."""
    is_opened: bool
    is_first: bool
    """Whether its session had read nothing."""
    is_approved: bool = False


class RecordedBehavior:
    """Folds the calls of a log."""

    def __init__(
        self,
        tools: Iterable[RegisteredTool],
        agents: Collection[str],
        measures: Iterable[Measure] = (),
        *,
        since: str = "",
    ) -> None:
        """`tools` and `agents` are those that exist now, of which alone a policy can speak.

        `since` is a time as in the log: earlier calls only make up the sessions of later ones.
        """
        self.agents: dict[str, AgentUse] = {}
        self.unwatched: set[str] = set()
        """Sessions of which the log does not say what the user named."""
        self.left_out = 0
        """Calls that ran nothing, failed, or are of agents and tools that are gone."""
        self._tools = {tool.name: tool for tool in tools}
        self._known = agents
        self._measures = tuple(measures)
        self._since = since
        self._running: dict[str, _Running] = {}
        self._is_over = False
        self._touch_plans: dict[str, TouchPlan] = {}

    def fold(self, records: Iterable[Mapping[str, Any]], sessions: RecordedSessions) -> None:
        """Take in a log, whose sessions `sessions` rebuilds."""
        for step in sessions.walk(self._endings(records)):
            if step.call.is_allowed and not self._is_over and step.call.agent in self._known:
                self._running[step.call.call] = self._begun(step, sessions)
            else:
                self.left_out += 1
        self.left_out += len(self._running)
        self._running.clear()

    def _endings(self, records: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """The records, each looked at for what became of a call."""
        for record in records:
            kind, running = record.get("type"), self._running.get(record.get("call", ""))
            self._is_over = kind == "PolicyDecision" and "status" in record
            if running is None or kind not in ("Approval", "ToolCompleted"):
                pass
            elif kind == "Approval" and "status" not in record:
                # As the session takes it: a yes of now, where policies asked. A remembered one saw no value.
                running.is_approved = "asked_at" in record and bool(running.step.call.asked_by)
            elif kind == "Approval" or record.get("status") != "pending":
                del self._running[record["call"]]
                if kind == "ToolCompleted" and record.get("status") == "ok":
                    self._count(running)
                else:
                    self.left_out += 1
            yield record

    def _begun(self, step: Step, sessions: RecordedSessions) -> _Running:
        recorded = {} if step.call.flow is None else step.call.flow.origins
        origins: dict[str, Collection[str]] = {}
        session, tool, arguments = step.session, step.tool, step.arguments
        if session is not None and tool is not None and arguments is not None and sessions.flow is not None:
            plan = sessions.flow.plan(tool)
            for name, value in arguments.items():
                found = recorded.get(name)
                origins[name] = found or [one.value for one in session.origin(plan, name, value).origins]
        return _Running(
            step=step,
            origins=origins,
            is_opened=session is None or session.state.opened,
            is_first=session is not None and not session.state.opened and not session.state.after,
        )

    def _count(self, call: _Running) -> None:
        step, tool = call.step, self._tools.get(call.step.call.tool)
        if step.call.time < self._since:
            return
        if tool is None:
            self.left_out += 1
            return
        agent = self.agents.setdefault(step.call.agent, AgentUse())
        use = agent.tools.setdefault(tool.name, ToolUse(tool=tool))
        agent.calls.add(step)
        use.calls.add(step)
        if call.is_opened and tool.may_write:
            agent.opened.add(step)
        if step.call.flow is None and step.session is not None:
            self.unwatched.add(step.session.key)
        self._measure(agent, call)
        if step.tool is None:
            return
        use.plan = use.plan or make_plan(step.tool)
        if step.call.flow is not None:
            use.watched.add(step)
            for name, origins in step.call.flow.origins.items():
                for origin in origins:
                    use.origins.setdefault(name, {}).setdefault(origin, Evidence()).add(step)
        if step.arguments is not None:
            self._look(use, call, step.tool, step.arguments)

    def _look(self, use: ToolUse, call: _Running, tool: RegisteredTool, arguments: Mapping[str, Any]) -> None:
        """Take in what the arguments of a call were."""
        step, plan = call.step, self._touch_plan(tool)
        for name, touch in _named_by(plan, arguments, step.call.touches):
            kind, _, text = touch.partition(":")
            text = text.partition(" (private: ")[0]
            if text == HIDDEN:
                continue
            is_file = kind.startswith("fs.")
            if not is_file and not kind.startswith("net."):
                continue
            if is_file and not name:  # of the definition, whatever the arguments are
                continue
            named = use.folders.setdefault(name, Named()) if is_file else use.hosts
            if name and not _is_own_choice(call, name):
                named.others.add(step)
            else:
                named.add(_folder(text) if is_file else text, step)
        free = () if use.plan is None else use.plan.free
        if all(TRUSTED.issuperset(origins) for one, origins in call.origins.items() if one not in free):
            use.example = arguments

    def _measure(self, agent: AgentUse, call: _Running) -> None:
        step = call.step
        now = datetime.fromisoformat(step.call.time).timestamp()
        for measure in self._measures:
            if not measure.counts(step.call.tool):
                continue
            if measure.parameter and not _is_own_choice(call, measure.parameter):
                continue  # an outsider may have chosen the amount
            try:
                value = measure.own_value(step.arguments or {})
            except ValueError:
                continue
            agent.peaks.setdefault(measure.name, Peaks(measure)).add(step, value, now)

    def _touch_plan(self, tool: RegisteredTool) -> TouchPlan:
        if tool.definition_hash not in self._touch_plans:
            self._touch_plans[tool.definition_hash] = TouchPlan(tool.definition)
        return self._touch_plans[tool.definition_hash]


def proposed_measures(tools: Iterable[RegisteredTool]) -> Iterator[Measure]:
    """Measures that nobody declared and that would bound what agents do: calls, and amounts of acts."""
    amounts = [
        (tool.name, name)
        for tool in tools
        for name, role in make_plan(tool).roles.items()
        if role is Role.AMOUNT and _NAME.fullmatch(f"{tool.name}_{name}")
    ]
    for window, over_s in (("session", None), ("day", 86_400.0)):
        yield Measure(name=f"calls_{window}", of="calls", over_s=over_s)
        for tool, name in amounts[:MEASURES]:
            yield Measure(name=f"{tool}_{name}_{window}", of=tool, parameter=name, over_s=over_s)


def bounded(measures: Iterable[Measure]) -> tuple[Measure, ...]:
    """The measures that a recorded call says something about when it is decided."""
    return tuple(one for one in measures if not one.is_late and (one.of == "calls" or one.of not in BUILT_IN))


def _is_own_choice(call: _Running, name: str) -> bool:
    """Whether no outsider can have chosen the value of an argument."""
    origins = call.origins.get(name, (Origin.UNKNOWN.value,))
    if TRUSTED.issuperset(origins):
        return True
    return Origin.OUTSIDE.value not in origins and (call.is_approved or call.is_first)


def _named_by(
    plan: TouchPlan, arguments: Mapping[str, Any], touches: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    """What a call touched, each with the argument that named it; empty if the tool's requirement did.

    In the order in which they were resolved. Nothing if that does not tell which argument it was.
    """
    names: list[str] = []
    for path, mark in plan.marks:
        name = path[0]
        if name is None or len(path) > 2 or (len(path) == 2 and path[1] is not None) or plan.unread:
            return
        value = arguments.get(name)
        number = 0 if value is None else len(value) if isinstance(value, list) else 1
        names += [name] * (min(number, 1) if mark.form is TouchForm.ARGV else number)
    if len(names) <= len(touches):
        names += [""] * (len(touches) - len(names))
        yield from zip(names, touches, strict=True)


def _folder(path: str) -> str:
    return path if os.path.isdir(path) else os.path.dirname(path)


def _session(step: Step) -> str:
    """Which conversation a call belongs to; a remote caller's state outlives its conversations."""
    key = "" if step.session is None else step.session.key
    return f"{key}\n{step.call.session or step.call.conversation}"
