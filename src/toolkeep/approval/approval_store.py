"""Approval store: the Protocol for questions, answers and rules, and its in-memory implementation.

The rules for answers (`advance`, `check_answer`) run inside the store's transaction, so that every client of
the store obeys them.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from toolkeep.approval.coverage import Constraint, covers
from toolkeep.approval.question import (
    EXPIRED,
    Answer,
    AnswerRefused,
    Question,
    Rule,
    Standing,
    check_answer,
    covered,
)
from toolkeep.limits import APPROVAL_POLL_SECONDS, APPROVALS_BYTES, APPROVALS_WAITING, SESSION_SECONDS

Result = TypeVar("Result")


class Approvals(Protocol):
    """Store of approval requests. Every change is atomic across processes, and across servers that share it.

    An event loop calls the methods through `run`: a store may wait for a network.
    """

    async def run(self, method: Callable[..., Result], *arguments: object) -> Result:
        """Call a method of this store without blocking the event loop."""

    def watch(self, heard: Callable[[str], object]) -> AbstractContextManager[float]:
        """Call `heard`, in any thread, with the id of each question that changed; empty if any may have.

        Gives the interval in seconds at which the questions must be polled besides.
        """

    def ask(self, question: Question) -> bool:
        """Enqueue a question; False if the agent's quota is used up."""

    def answer(self, question_id: str, answer: Answer) -> Standing:
        """Record an answer; raises `AnswerRefused` for an invalid one."""

    def is_waiting(self, question_id: str) -> bool:
        """Whether a question is still unanswered. Polled by the waiting call, so it must be cheap."""

    def standing(self, question_id: str) -> Standing | None:
        """The state of a question."""

    def use(self, question: Question) -> bool:
        """Consume the approval of exactly this question; False if there is none or it was used before."""

    def withdraw(self, question_id: str) -> None:
        """Withdraw a question that its call no longer waits for; an answer that was given stays."""

    def waiting(self) -> list[Standing]:
        """Unanswered questions, oldest first."""

    def session_answer(self, question: Question) -> Answer | None:
        """The session approval that covers a question."""

    def rules(self) -> list[Rule]:
        """The rules that have not expired."""

    def add_rule(self, rule: Rule) -> None:
        """Store a rule."""

    def revoke(self, rule_id: str) -> bool:
        """Revoke a rule; whether it existed."""

    def close(self) -> None:
        """Close it."""


def advance(standing: Standing, answer: Answer, now: float) -> Standing:
    """State transition of a question by an answer; raises `AnswerRefused`."""
    if standing.state == "expired":
        raise AnswerRefused(EXPIRED)
    if standing.state != "waiting":
        raise AnswerRefused(f"it is {standing.state} already")
    question = standing.question
    check_answer(question, answer, now)
    answer = replace(answer, given_at=now)
    if answer.verdict == "deny":
        return replace(standing, state="denied", answer=answer)
    question = replace(question, acts_done=question.acts_done + 1)
    is_enough = question.acts_done >= question.acts
    return Standing(question=question, state="approved" if is_enough else "waiting", answer=answer)


def has_room(sizes: Sequence[int], size: int) -> bool:
    """Whether an agent may enqueue another question of this size.

    Bounded in number and bytes per agent: an agent that floods the inbox must not hide the questions of
    others.
    """
    # A single question may exceed the bytes: arguments have a limit of their own, and it must be askable.
    is_small = sum(sizes) + size <= APPROVALS_BYTES
    return len(sizes) < APPROVALS_WAITING and (is_small or not sizes)


def bound(question: Question) -> tuple[str, str, str, str, str]:
    """What an approval is bound to besides the question id."""
    return (
        question.definition_hash,
        question.argument_hash,
        question.agent,
        question.grant_hash,
        question.call_id,
    )


def session_key(question: Question) -> tuple[str, str, str, str]:
    """What a session approval is bound to."""
    return question.definition_hash, question.agent, question.session, question.grant_hash


def seen_at(standing: Standing, now: float) -> Standing:
    """The state now: an unanswered question past its deadline has expired."""
    is_over = standing.state == "waiting" and now >= standing.question.expires_at
    return replace(standing, state="expired") if is_over else standing


class SessionYes(NamedTuple):
    """A session approval and its constraints."""

    answer: Answer
    constraints: tuple[Constraint, ...]


def session_yes(question: Question, answer: Answer, now: float) -> SessionYes:
    """The session approval that an answer creates."""
    return SessionYes(replace(answer, given_at=now), covered(question, answer))


def covering(given: Iterable[SessionYes], question: Question, now: float) -> Answer | None:
    """The newest approval that covers a question, among those for its definition, agent, session and
    grant."""
    for one in given:
        is_own = one.answer.identity is not None and one.answer.identity.is_same_person(question.identity)
        if not is_own and in_time(one.answer, now) is not None and covers(one.constraints, question.choices):
            return one.answer
    return None


def covering_rule(rules: Iterable[Rule], question: Question) -> Rule | None:
    """The rule that covers a question.

    A changed definition hash voids the rule: the tool may do something else now. So may other per-call data,
    or data where there was none: they can change whose things the tool touches.
    """
    about = question.agent, question.tool, question.definition_hash, question.data_hash
    for rule in rules:
        is_about = (rule.agent, rule.tool, rule.definition_hash, rule.data_hash) == about
        # Nobody approves in advance what is later called on their own behalf.
        is_own = rule.identity is not None and rule.identity.is_same_person(question.identity)
        if is_about and not is_own and covers(rule.constraints, question.choices):
            return rule
    return None


def in_time(answer: Answer | None, now: float) -> Answer | None:
    """A session approval while it is valid.

    Hosts choose session names, and the same one may come again next year.
    """
    return answer if answer is not None and now < answer.given_at + SESSION_SECONDS else None


OVER: Final = ("used", "withdrawn", "denied")
"""Final states; expired questions are removed soon anyway."""


class EmbeddedApprovals:
    """What the stores in memory and in files have in common: they answer at once, and are polled."""

    async def run(self, method: Callable[..., Result], *arguments: object) -> Result:
        """Call a method."""
        return method(*arguments)

    def watch(self, heard: Callable[[str], object]) -> AbstractContextManager[float]:  # noqa: ARG002 -- polled
        """The interval of polling."""
        return nullcontext(APPROVAL_POLL_SECONDS)


class MemoryApprovals(EmbeddedApprovals):
    """In-memory approvals, lost with the process."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._standings: dict[str, Standing] = {}
        self._sessions: dict[tuple[str, str, str, str], list[SessionYes]] = {}
        self._rules: dict[str, Rule] = {}

    def ask(self, question: Question) -> bool:
        """Enqueue a question; False if the agent's quota is used up."""
        now = self._clock()
        with self._lock:
            # Questions hold arguments in the clear: abandoned ones are dropped soon.
            held = self._standings.items()
            self._standings = {key: one for key, one in held if now <= one.question.expires_at + 60}
            self._forget_oldest(question.agent)
            own = [one.question for one in self._waiting() if one.question.agent == question.agent]
            if not has_room([_size(one) for one in own], _size(question)):
                return False
            self._standings[question.id] = Standing(question=question, state="waiting")
            return True

    def answer(self, question_id: str, answer: Answer) -> Standing:
        """Record an answer; raises `AnswerRefused` for an invalid one."""
        with self._lock:
            standing = self._standings.get(question_id)
            if standing is None:
                raise AnswerRefused("there is no such approval request")
            now = self._clock()
            standing = self._standings[question_id] = advance(standing, answer, now)
            if standing.state == "approved" and answer.reach == "session":
                given = self._sessions.setdefault(session_key(standing.question), [])
                given[:] = [one for one in given if in_time(one.answer, now) is not None]
                given.insert(0, session_yes(standing.question, answer, now))
            return standing

    def is_waiting(self, question_id: str) -> bool:
        """Whether a question is still unanswered."""
        standing = self._standings.get(question_id)
        return standing is not None and standing.state == "waiting"

    def standing(self, question_id: str) -> Standing | None:
        """The state of a question."""
        standing = self._standings.get(question_id)
        return None if standing is None else seen_at(standing, self._clock())

    def use(self, question: Question) -> bool:
        """Consume the approval of exactly this question; False if there is none or it was used before."""
        with self._lock:
            standing = self._standings.get(question.id)
            if (
                standing is None
                or standing.state != "approved"
                or bound(standing.question) != bound(question)
            ):
                return False
            # Checked again at use: between answer and use the approval may have expired.
            if self._clock() >= standing.question.expires_at:
                return False
            # Single use: under the lock, so that two calls with one approval cannot both pass.
            self._standings[question.id] = replace(standing, state="used")
            return True

    def withdraw(self, question_id: str) -> None:
        """Withdraw a question that its call no longer waits for; an answer that was given stays."""
        with self._lock:
            standing = self.standing(question_id)
            if standing is not None and standing.state == "waiting":
                self._standings[question_id] = replace(standing, state="withdrawn")

    def waiting(self) -> list[Standing]:
        """Unanswered questions, oldest first."""
        with self._lock:
            return self._waiting()

    def _waiting(self) -> list[Standing]:
        now = self._clock()
        return [one for one in self._standings.values() if seen_at(one, now).state == "waiting"]

    def _forget_oldest(self, agent: str) -> None:
        """Evict an agent's oldest finished questions: it may ask and give up without end."""
        sizes: list[int] = []
        for key, one in reversed(list(self._standings.items())):
            if one.question.agent == agent and one.state in OVER:
                if has_room(sizes, _size(one.question)):
                    sizes.append(_size(one.question))
                else:
                    del self._standings[key]

    def session_answer(self, question: Question) -> Answer | None:
        """The session approval that covers a question."""
        # Calls without a session share no approval: the empty name would be one session for everybody.
        given = self._sessions.get(session_key(question), ()) if question.session else ()
        return covering(given, question, self._clock())

    def rules(self) -> list[Rule]:
        """The rules that have not expired."""
        now = self._clock()
        return [rule for rule in self._rules.values() if now < rule.ends_at]

    def add_rule(self, rule: Rule) -> None:
        """Store a rule."""
        with self._lock:
            self._rules[rule.id] = rule

    def revoke(self, rule_id: str) -> bool:
        """Revoke a rule; whether it existed."""
        with self._lock:
            return self._rules.pop(rule_id, None) is not None

    def close(self) -> None:
        """Keep everything: there is nothing to close."""


def _size(question: Question) -> int:
    """Size charged to the quota: arguments and diff."""
    return len(question.arguments) + len(question.difference)
