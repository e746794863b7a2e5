"""Approval request and answer as data, shared by stores, terminals and pages (POL-4).

A question shows the exact call, and the approval is bound to exactly what was shown: definition, arguments,
agent and grant. An approval for the session, or as a rule, binds each argument as `coverage.py` says.
"""

import json
from typing import Any, Final, Literal

import msgspec

from toolkeep.approval.coverage import Argument, Constraint, ConstraintRefused, constraints_of
from toolkeep.calls import Identity

Verdict = Literal["approve", "deny"]
Reach = Literal["once", "session", "rule"]
State = Literal["waiting", "approved", "denied", "used", "withdrawn", "expired"]

EXPIRED = "this approval request has expired"


class FlowLine(msgspec.Struct, frozen=True, kw_only=True):
    """A value that a call would act on, and where it comes from (FLO-7)."""

    argument: str
    """JSON Pointer."""
    role: str
    value: str
    """The beginning of the value; of a secret nothing."""
    origin: str
    """user, system, outside or unknown."""
    source: str = ""
    """The tool and the field of its result that hold the value, if one was found."""
    excerpt: str = ""
    """What stands around it there."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """An approval request: one call that waits for a person."""

    id: str
    response: str = ""
    """Questions with the same one are about calls of one response of the model; empty for a call alone."""
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
    """Why approval is required, in words."""
    acts: int = 1
    """Number of approvals needed; the second is given by typing the tool's name."""
    acts_done: int = 0
    arguments: str
    """All arguments as JSON text; each secret is replaced by its length."""
    touches: tuple[str, ...] = ()
    """Touched resources, each as `kind:canonical form`."""
    difference: str = ""
    """Diff of the file that would be written, if it can be computed."""
    policies: tuple[str, ...] = ()
    """Ids of the policies that permit the call."""
    flow: tuple["FlowLine", ...] = ()
    """Where each value with authority comes from, if what passes between calls is a reason to ask."""
    is_about_flow: bool = False
    """Whether what passed between calls is a reason to ask; such an answer is for this call alone."""
    choices: tuple[Argument, ...] = ()
    """Every argument, as a remembered approval would bind it."""
    data_hash: str = ""
    """HMAC of the host's per-call data, if any."""
    identity: Identity | None = None
    """The subject on whose behalf the call is made, if an identity provider vouches for one."""
    asked_at: float
    """POSIX seconds."""
    expires_at: float

    @property
    def argument_data(self) -> dict[str, Any]:
        """The arguments, parsed."""
        data: dict[str, Any] = json.loads(self.arguments)
        return data

    @property
    def may_be_remembered(self) -> bool:
        """Whether the answer may be remembered for the session or as a rule.

        High danger is asked about every time, and so is a call that text from outside may have chosen.
        """
        return self.danger in ("safe", "low", "medium") and not self.is_about_flow

    @property
    def wants_name(self) -> bool:
        """Whether the next approval must be given by typing the tool's name."""
        return self.acts_done + 1 == self.acts == 2


BY_CLIENT: Final = "client"
"""The way of an answer that only an MCP client vouches for: no person may have seen the question."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to an approval request."""

    verdict: Verdict
    approver: str
    way: str
    reach: Reach = "once"
    reason: str = ""
    """Sent to the model with a denial."""
    typed_name: str = ""
    days: int = 30
    """Lifetime of a rule."""
    arguments: dict[str, str] = {}
    """For a session or a rule, the constraints by argument name: `equal`, `any`, `folder:…`, `host:…`,
    `domain:…` or `max:…`. Others must be equal, unless declared content or option."""
    given_at: float = 0.0
    """POSIX seconds; set by the store."""
    identity: Identity | None = None
    """The person who answers, if an identity provider vouches for them."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A question with its state and answer."""

    question: Question
    state: State
    answer: Answer | None = None


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A remembered approval that covers later calls within its constraints."""

    id: str
    text: str
    """What is covered, in words."""
    constraints: tuple[Constraint, ...]
    agent: str
    tool: str
    definition_hash: str
    data_hash: str = ""
    """HMAC of the per-call data that later calls must have too: it may choose the tenant."""
    approver: str
    identity: Identity | None = None
    """The person who approved it, if an identity provider vouches for them."""
    made_at: float
    ends_at: float


class AnswerRefused(Exception):
    """An invalid answer; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def check_answer(question: Question, answer: Answer, now: float) -> None:
    """Raise `AnswerRefused` for an answer that is not valid for a question (POL-4)."""
    if not answer.approver.strip():
        raise AnswerRefused("the answer has no approver")
    # Separation of duties: an agent that can reach the approval API must not approve its own calls.
    if answer.approver.strip().casefold() == question.agent.casefold():
        raise AnswerRefused("an agent cannot approve its own call")
    # The agent may have another name than the person it works for, and be that of many people.
    if answer.identity is not None and answer.identity.is_same_person(question.identity):
        raise AnswerRefused("nobody can answer a call that is made on their own behalf")
    # The call may have been refused already; a late yes must not be waiting for its retry.
    if now >= question.expires_at:
        raise AnswerRefused(EXPIRED)
    # A denial needs no further checks: nothing that it says can permit anything.
    if answer.verdict == "deny":
        return
    if answer.reach != "once" and not question.may_be_remembered:
        what = "a call that text from outside may have chosen"
        what = what if question.is_about_flow else f"a tool of danger {question.danger}"
        raise AnswerRefused(f"{what} needs approval every time")
    if answer.reach == "session" and not question.session:
        raise AnswerRefused("the call belongs to no session")
    if answer.reach != "once":
        covered(question, answer)
    if question.wants_name and answer.typed_name != question.tool:
        raise AnswerRefused(f"confirm by typing the name of the tool, {question.tool}")


def covered(question: Question, answer: Answer) -> tuple[Constraint, ...]:
    """The constraints of an answer for a session or rule; raises `AnswerRefused`."""
    try:
        return constraints_of(question.choices, answer.arguments)
    except ConstraintRefused as refused:
        raise AnswerRefused(str(refused)) from refused
