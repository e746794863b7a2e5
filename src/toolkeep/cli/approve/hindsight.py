"""What a rule would have allowed among the calls that the log has, for the person who is about to make it."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolkeep.approval.question import Question
from toolkeep.approval.view import Line, fit, moment, rows
from toolkeep.files import is_there
from toolkeep.wording import counted

if TYPE_CHECKING:
    from toolkeep.calls import RegisteredTool

_LAST: Final = 3
_DAY_SECONDS: Final = 86_400


class Earlier(NamedTuple):
    """A recorded call."""

    call: str
    time: str
    definition_hash: str
    argument_hash: str
    has_arguments: bool
    touches: tuple[str, ...]


class Hindsight(NamedTuple):
    """How a rule would have decided."""

    looked_at: int
    """Recorded calls, of whatever tool and agent."""
    allowed: tuple[Earlier, ...] = ()
    unkept: int = 0
    """Calls whose arguments were not kept."""
    unknown: int = 0
    """Calls that only a process which has the tool can judge."""


def look_back(question: Question, project: Path | None) -> Hindsight:
    """Judge the recorded calls by the rule that a question would add."""
    from toolkeep.assembly import open_state, project_folder
    from toolkeep.storage.bodies import Bodies

    state = open_state(project_folder(project))
    if state is None:
        return Hindsight(0)
    count, calls = _recorded(question, state.folder)
    if not calls:
        return Hindsight(count)
    judge = _judge(question, project)
    allowed, unkept, unknown = [], 0, 0
    with contextlib.closing(Bodies(state.folder)) as bodies:
        for call in calls:
            if _is_same(call, question):
                allowed.append(call)
            elif judge is None:
                unknown += 1
            elif (arguments := _arguments(call, bodies)) is None:
                unkept += 1
            elif judge.allows(arguments, call.touches):
                allowed.append(call)
    return Hindsight(count, tuple(allowed), unkept, unknown)


def rule_lines(question: Question, *, now: float, days: int, width: int) -> Iterator[Line]:
    """The rule that "always" would add, and its end."""
    yield Line('"Always" would add this rule:', "heading")
    yield from rows(question.rule, width)
    yield Line(f"It ends at {moment(now + days * _DAY_SECONDS)}, in {counted(days, 'day')}.", "label")


def hindsight_lines(back: Hindsight, *, width: int) -> Iterator[Line]:
    """What came of looking back."""
    allowed = len(back.allowed)
    calls = f"{counted(back.looked_at, 'recorded call')}"
    yield Line(
        f"Of {calls} it would have allowed {allowed}" + (", the last of them:" if allowed else "."), "label"
    )
    for call in back.allowed[-_LAST:]:
        yield Line(fit(f"  {call.time}  {call.call}", width), "foreign")
    if back.unkept:
        yield Line(f"{back.unkept} could not be judged: their arguments were not kept.", "note")
    if back.unknown:
        yield Line(f"{back.unknown} could not be judged: the tool is not known to this command.", "note")


def _recorded(question: Question, folder: Path) -> tuple[int, list[Earlier]]:
    """How many calls the log has, and those that a rule of this agent, tool and definition can be about."""
    from toolkeep.storage.segments import read_entries

    count = 0
    found: dict[str, Earlier] = {}
    for entry in read_entries(folder / "audit", 0, 1 << 62) if is_there(folder / "audit") else ():
        record = entry.record
        if record.get("type") == "ToolInvoked":
            count += 1
            if _is_about(record, question):
                found[str(record["call"])] = _earlier(record)
        elif record.get("type") == "PolicyDecision" and record.get("call") in found:
            call = str(record["call"])
            found[call] = found[call]._replace(touches=tuple(record.get("touches", ())))
    return count, list(found.values())


def _is_about(record: Mapping[str, Any], question: Question) -> bool:
    """Calls without a hash never came as far as a person: they were not valid, or not permitted."""
    same = ("agent", "tool", "definition_hash")
    wanted = question.agent, question.tool, question.definition_hash
    return tuple(record.get(key) for key in same) == wanted and bool(record.get("argument_hash"))


def _earlier(record: Mapping[str, Any]) -> Earlier:
    return Earlier(
        call=str(record["call"]),
        time=str(record.get("time", "")),
        definition_hash=str(record["definition_hash"]),
        argument_hash=str(record["argument_hash"]),
        has_arguments=bool(record.get("has_arguments")),
        touches=(),
    )


def _is_same(call: Earlier, question: Question) -> bool:
    """Whether it is the very call that is asked about: then nothing else need be known of it."""
    return call.argument_hash == question.argument_hash and call.touches == question.touches


def _arguments(call: Earlier, bodies: Any) -> dict[str, Any] | None:
    from toolkeep.audit.errors import BodyUnavailable

    if not call.has_arguments:
        return None
    try:
        data = json.loads(bodies.get(call.argument_hash))
    except (BodyUnavailable, ValueError):
        return None
    return data if isinstance(data, dict) else None


class _Judge:
    """Applies one rule to recorded arguments, as the keep would have then."""

    def __init__(self, question: Question, tool: "RegisteredTool") -> None:
        from toolkeep.policy.cedar_values import ArgumentShape
        from toolkeep.policy.engine import AgentEntity, Engine
        from toolkeep.policy.reading import read_policies
        from toolkeep.policy.settings import PolicySource
        from toolkeep.policy.touched import TouchPlan

        self._engine = Engine(read_policies([PolicySource(name="rule", text=question.rule)]))
        self._agent = AgentEntity(id=question.agent)
        self._tool = tool
        self._shape = ArgumentShape(tool.arguments.schema)
        self._plan = TouchPlan(tool.definition)

    def allows(self, arguments: Mapping[str, Any], touches: Sequence[str]) -> bool:
        from toolkeep.policy.engine import CallFacts

        canonical = self._canonical(arguments, touches)
        lost: list[tuple[str, ...]] = []
        self._shape.record(arguments, canonical, lost)
        facts = CallFacts(arguments=arguments, canonical=canonical)
        return not lost and self._engine.decide(self._agent, self._tool, facts).is_allowed

    def _canonical(self, arguments: Mapping[str, Any], touches: Sequence[str]) -> dict[str, str]:
        """The canonical forms of that time, by the argument that named each: they stand in the same order."""
        from toolkeep.policy.touched import TouchRefused

        try:
            named = self._plan.touched(arguments, str(Path.cwd()), os.environ.get("PATH", ""))
        except TouchRefused:
            return {}
        for one in named:
            one.close()
        return {one.pointer: seen.partition(":")[2] for one, seen in zip(named, touches, strict=False)}


def _judge(question: Question, project: Path | None) -> _Judge | None:
    """None where this process does not have the tool as it was asked about."""
    from toolkeep.assembly import open_keep
    from toolkeep.errors import ToolkeepError

    try:
        with open_keep(project=project) as keep:
            tool = keep.get(f"{question.tool}@{question.version}")
        return _Judge(question, tool) if tool.definition_hash == question.definition_hash else None
    except ToolkeepError:
        return None
