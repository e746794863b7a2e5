"""A question to a person about one call, and the answer: data that stores, terminals and pages share (POL-4).

A question shows the exact call. What is bound is what was shown: definition, arguments, agent and grant. A
yes for the session, or as a rule, binds each argument as `coverage.py` says.
"""

import json
from typing import Any, Literal

import msgspec

from toolkeep.approval.coverage import Argument, Constraint, ConstraintRefused, constraints_of

Verdict = Literal["approve", "deny"]
Reach = Literal["once", "session", "rule"]
State = Literal["waiting", "approved", "denied", "used", "withdrawn", "expired"]

EXPIRED = "this approval request has expired"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One call that waits for a person."""

    id: str
    call_id: str
    agent: str
    conversation: str = ""
    session: str = ""
    tool: str
    version: str
    definition_hash: str
    argument_hash: str
    grant_hash: str
    danger: str
    why: tuple[str, ...]
    """Why it is asked, in words."""
    acts: int = 1
    """How often a person has to say yes; the second time by typing the tool's name."""
    acts_done: int = 0
    arguments: str
    """The whole arguments as JSON text; each secret is replaced by how long it is."""
    touches: tuple[str, ...] = ()
    """What the call would touch, each as `kind:canonical form`."""
    difference: str = ""
    """How a file would change, where that can be told."""
    policies: tuple[str, ...] = ()
    """The policies that permit the call."""
    choices: tuple[Argument, ...] = ()
    """Every argument, as a yes that is remembered would bind it."""
    asked_at: float
    """POSIX seconds."""
    expires_at: float

    @property
    def argument_data(self) -> dict[str, Any]:
        """The arguments as data."""
        data: dict[str, Any] = json.loads(self.arguments)
        return data

    @property
    def may_be_remembered(self) -> bool:
        """Whether the answer may hold for the session, or as a rule."""
        return self.danger in ("safe", "low", "medium")

    @property
    def wants_name(self) -> bool:
        """Whether the next yes must be given by typing the tool's name."""
        return self.acts_done + 1 == self.acts == 2


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a person said."""

    verdict: Verdict
    approver: str
    way: str
    reach: Reach = "once"
    reason: str = ""
    """Goes back to the model with a no."""
    typed_name: str = ""
    days: int = 30
    """How long a rule holds."""
    arguments: dict[str, str] = {}
    """For a session or a rule, what may differ: `equal`, `any`, `folder:…`, `host:…`, `domain:…` or `max:…`
    by name. An argument that is not named must be equal, unless it is declared content or option."""
    given_at: float = 0.0
    """POSIX seconds; set by whoever keeps the answer."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a question stands."""

    question: Question
    state: State
    answer: Answer | None = None


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A yes that holds for every call like one that was asked about."""

    id: str
    text: str
    """What passes unasked, in words."""
    constraints: tuple[Constraint, ...]
    agent: str
    tool: str
    definition_hash: str
    approver: str
    made_at: float
    ends_at: float


class AnswerRefused(Exception):
    """An answer that does not count; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def check_answer(question: Question, answer: Answer, now: float) -> None:
    """Raise `AnswerRefused` for an answer that may not be given to a question (POL-4)."""
    if not answer.approver.strip():
        raise AnswerRefused("an answer names who gives it")
    if answer.approver.strip().casefold() == question.agent.casefold():
        raise AnswerRefused("an agent cannot approve its own call")
    if now >= question.expires_at:
        raise AnswerRefused(EXPIRED)
    if answer.verdict == "deny":
        return
    if answer.reach != "once" and not question.may_be_remembered:
        raise AnswerRefused(f"a tool of danger {question.danger} is asked about every time")
    if answer.reach == "session" and not question.session:
        raise AnswerRefused("the call belongs to no session")
    if answer.reach != "once":
        covered(question, answer)
    if question.wants_name and answer.typed_name != question.tool:
        raise AnswerRefused(f"the second yes is given by typing the tool's name, {question.tool}")


def covered(question: Question, answer: Answer) -> tuple[Constraint, ...]:
    """What later calls must satisfy to be covered by an answer; raises `AnswerRefused`."""
    try:
        return constraints_of(question.choices, answer.arguments)
    except ConstraintRefused as refused:
        raise AnswerRefused(str(refused)) from refused
