"""A question, answers to it, and a clock that stands still until it is told."""

from typing import Any

from msgspec.structs import replace

from toolkeep.approval.coverage import Argument, Constraint
from toolkeep.approval.question import Answer, Question, Rule

BEGAN = 1_000_000.0


class Clock:
    """POSIX seconds that pass only where a test says so."""

    def __init__(self, now: float = BEGAN) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


QUESTION = Question(
    id="question-1",
    call_id="call-1",
    agent="planner",
    session="session-1",
    tool="greet",
    version="1.0.0",
    definition_hash="definition-1",
    argument_hash="arguments-1",
    grant_hash="grant-1",
    danger="medium",
    why=("its danger is medium",),
    arguments='{"name": "Ada"}',
    choices=(Argument(name="name", digest="ada", shown='"Ada"'),),
    asked_at=BEGAN,
    expires_at=BEGAN + 300,
)

YES = Answer(verdict="approve", approver="ada", way="terminal")
NO = Answer(verdict="deny", approver="ada", way="terminal", reason="not today")

RULE = Rule(
    id="rule-1",
    text='planner calls greet 1.0.0 with\n  name equal to "Ada"',
    constraints=(Constraint(name="name", kind="equal", bound="ada", shown='"Ada"'),),
    agent="planner",
    tool="greet",
    definition_hash="definition-1",
    approver="ada",
    made_at=BEGAN,
    ends_at=BEGAN + 1000,
)


def question(**changes: Any) -> Question:
    """The question, but for what a test changes."""
    return replace(QUESTION, **changes)


def yes(**changes: Any) -> Answer:
    """A yes, but for what a test changes."""
    return replace(YES, **changes)
