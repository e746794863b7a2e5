"""Which recorded calls a remembered approval would have covered, shown before it is given."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolkeep.approval.coverage import Constraint, arguments_of, covers
from toolkeep.approval.question import Question
from toolkeep.approval.question_text import Line
from toolkeep.host.files import is_there
from toolkeep.text.columns import fit
from toolkeep.text.display import counted

if TYPE_CHECKING:
    from toolkeep.calls import RegisteredTool

_LAST: Final = 3


class Earlier(NamedTuple):
    """A recorded call."""

    call: str
    time: str
    definition_hash: str
    argument_hash: str
    has_arguments: bool
    touches: tuple[str, ...]


class _Recorded(NamedTuple):
    """A resource that an argument of a recorded call named."""

    kind: str
    pointer: str
    shown: str
    root_path: str | None = None


class RulePreview(NamedTuple):
    """The recorded calls that a remembered approval would have covered."""

    looked_at: int
    """All recorded calls, of any tool and agent."""
    allowed: tuple[Earlier, ...] = ()
    unkept: int = 0
    """Calls whose arguments were not stored."""
    unknown: int = 0
    """Calls that cannot be checked without the tool."""


def preview_rule(question: Question, constraints: Sequence[Constraint], project: Path | None) -> RulePreview:
    """Apply the constraints of a remembered approval to the recorded calls."""
    from toolkeep.keep.open import open_state, project_folder
    from toolkeep.storage.sqlite.bodies_db import Bodies

    state = open_state(project_folder(project))
    if state is None:
        return RulePreview(0)
    count, calls = _recorded(question, state.folder)
    if not calls:
        return RulePreview(count)
    judge = _judge(question, constraints, project)
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
    return RulePreview(count, tuple(allowed), unkept, unknown)


def preview_lines(back: RulePreview, *, width: int) -> Iterator[Line]:
    """The preview as text."""
    allowed = len(back.allowed)
    calls = f"{counted(back.looked_at, 'recorded call')}"
    yield Line(
        f"It would have allowed {allowed} of {calls}" + (", the last of them:" if allowed else "."), "label"
    )
    for call in back.allowed[-_LAST:]:
        yield Line(fit(f"  {call.time}  {call.call}", width), "foreign")
    if back.unkept:
        yield Line(f"{back.unkept} could not be evaluated: their arguments are not stored.", "note")
    if back.unknown:
        yield Line(f"{back.unknown} could not be evaluated: the tool is not available here.", "note")


def _recorded(question: Question, folder: Path) -> tuple[int, list[Earlier]]:
    """The number of recorded calls, and those of this agent, tool and definition."""
    from toolkeep.storage.log.segments import read_entries

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
    """Whether a record matches; calls without a hash were invalid or denied, and never reached approval."""
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
    """Whether it is the identical call, which is covered in any case."""
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
    """Applies constraints to recorded arguments as the keep would have."""

    def __init__(self, constraints: Sequence[Constraint], tool: "RegisteredTool") -> None:
        from toolkeep.definitions.argument_roles import ArgumentMarks
        from toolkeep.policy.touched_resources import TouchPlan

        self._constraints = constraints
        self._tool = tool
        self._marks = ArgumentMarks(tool.definition.parameters)
        self._plan = TouchPlan(tool.definition)

    def allows(self, arguments: Mapping[str, Any], touches: Sequence[str]) -> bool:
        # Arguments of tools with secrets are never stored, so there is nothing to redact here.
        named = self._named(arguments, touches)
        seen = arguments_of(self._tool.definition, self._marks, arguments, arguments, arguments, named)
        return covers(self._constraints, seen)

    def _named(self, arguments: Mapping[str, Any], touches: Sequence[str]) -> list[_Recorded]:
        """The recorded canonical resources, paired with the arguments that named them (same order)."""
        from toolkeep.policy.touched_resources import TouchRefused

        try:
            named = self._plan.touched(arguments, str(Path.cwd()), os.environ.get("PATH", ""))
        except TouchRefused:
            return []
        for one in named:
            one.close()
        return [
            _Recorded(one.kind, one.pointer, seen.partition(":")[2])
            for one, seen in zip(named, touches, strict=False)
        ]


def _judge(question: Question, constraints: Sequence[Constraint], project: Path | None) -> _Judge | None:
    """None if this process does not have the same definition of the tool."""
    from toolkeep.errors import ToolkeepError
    from toolkeep.keep.open import open_keep

    try:
        with open_keep(project=project) as keep:
            tool = keep.get(f"{question.tool}@{question.version}")
        return _Judge(constraints, tool) if tool.definition_hash == question.definition_hash else None
    except ToolkeepError:
        return None
