"""Where questions, answers and rules are kept: a Protocol, and its twin in memory."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

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
from toolkeep.limits import APPROVALS_BYTES, APPROVALS_WAITING, SESSION_SECONDS


class Approvals(Protocol):
    """Every change is atomic, whoever else tries the same."""

    def ask(self, question: Question) -> bool:
        """Put a question into the queue; False where too much of its agent waits there already."""

    def answer(self, question_id: str, answer: Answer) -> Standing:
        """Take an answer; raises `AnswerRefused` for one that does not count."""

    def is_waiting(self, question_id: str) -> bool:
        """Whether nobody has answered a question yet; its caller asks again and again."""

    def standing(self, question_id: str) -> Standing | None:
        """Where a question stands."""

    def use(self, question: Question) -> bool:
        """Use up the yes to exactly this question; False where there is none, or it was used before."""

    def withdraw(self, question_id: str) -> None:
        """The caller does not wait for an answer any more; one that was given stays."""

    def waiting(self) -> list[Standing]:
        """The questions that wait for an answer, oldest first."""

    def session_answer(self, question: Question) -> Answer | None:
        """The yes for the rest of the session that covers a question."""

    def rules(self) -> list[Rule]:
        """The rules that have not ended."""

    def add_rule(self, rule: Rule) -> None:
        """Remember a rule."""

    def revoke(self, rule_id: str) -> bool:
        """Forget a rule; whether there was one."""


def advance(standing: Standing, answer: Answer, now: float) -> Standing:
    """Where a question stands after an answer; raises `AnswerRefused`."""
    if standing.state == "expired":
        raise AnswerRefused(EXPIRED)
    if standing.state != "waiting":
        raise AnswerRefused(f"it is {standing.state} already")
    question = standing.question
    check_answer(question, answer, now)
    if answer.verdict == "deny":
        return replace(standing, state="denied", answer=answer)
    question = replace(question, acts_done=question.acts_done + 1)
    is_enough = question.acts_done >= question.acts
    return Standing(question=question, state="approved" if is_enough else "waiting", answer=answer)


def has_room(sizes: Sequence[int], size: int) -> bool:
    """Whether a question of some size may wait beside those of the same agent that do."""
    is_small = sum(sizes) + size <= APPROVALS_BYTES
    return len(sizes) < APPROVALS_WAITING and (is_small or not sizes)


def bound(question: Question) -> tuple[str, str, str, str, str]:
    """What a yes is bound to, beside the question itself."""
    return (
        question.definition_hash,
        question.argument_hash,
        question.agent,
        question.grant_hash,
        question.call_id,
    )


def session_key(question: Question) -> tuple[str, str, str, str]:
    """What a yes for the session is bound to."""
    return question.definition_hash, question.agent, question.session, question.grant_hash


def seen_at(standing: Standing, now: float) -> Standing:
    """Where a question stands now: one that nobody answered in time has expired."""
    is_over = standing.state == "waiting" and now >= standing.question.expires_at
    return replace(standing, state="expired") if is_over else standing


class SessionYes(NamedTuple):
    """A yes for the rest of a session, and what it covers."""

    answer: Answer
    constraints: tuple[Constraint, ...]


def session_yes(question: Question, answer: Answer, now: float) -> SessionYes:
    """The yes for the session that an answer to a question is."""
    return SessionYes(replace(answer, given_at=now), covered(question, answer))


def covering(given: Iterable[SessionYes], question: Question, now: float) -> Answer | None:
    """The newest yes that covers a question, of those for its definition, agent, session and grant."""
    for one in given:
        if in_time(one.answer, now) is not None and covers(one.constraints, question.choices):
            return one.answer
    return None


def covering_rule(rules: Iterable[Rule], question: Question) -> Rule | None:
    """The rule that covers a question."""
    about = question.agent, question.tool, question.definition_hash
    for rule in rules:
        if (rule.agent, rule.tool, rule.definition_hash) == about and covers(
            rule.constraints, question.choices
        ):
            return rule
    return None


def in_time(answer: Answer | None, now: float) -> Answer | None:
    """A yes for the session, while it holds: the same name of a session may come again next year."""
    return answer if answer is not None and now < answer.given_at + SESSION_SECONDS else None


OVER: Final = ("used", "withdrawn", "denied")
"""States of questions that nobody waits for; an expired one is removed soon anyway."""


class MemoryApprovals:
    """Approvals that last as long as the process."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._standings: dict[str, Standing] = {}
        self._sessions: dict[tuple[str, str, str, str], list[SessionYes]] = {}
        self._rules: dict[str, Rule] = {}

    def ask(self, question: Question) -> bool:
        """Put a question into the queue; False where too much of its agent waits there already."""
        now = self._clock()
        with self._lock:
            # What nobody came back for holds arguments; it is not kept for long.
            held = self._standings.items()
            self._standings = {key: one for key, one in held if now <= one.question.expires_at + 60}
            self._forget_oldest(question.agent)
            own = [one.question for one in self._waiting() if one.question.agent == question.agent]
            if not has_room([_size(one) for one in own], _size(question)):
                return False
            self._standings[question.id] = Standing(question=question, state="waiting")
            return True

    def answer(self, question_id: str, answer: Answer) -> Standing:
        """Take an answer; raises `AnswerRefused` for one that does not count."""
        with self._lock:
            standing = self._standings.get(question_id)
            if standing is None:
                raise AnswerRefused("there is no such question")
            now = self._clock()
            standing = self._standings[question_id] = advance(standing, answer, now)
            if standing.state == "approved" and answer.reach == "session":
                given = self._sessions.setdefault(session_key(standing.question), [])
                given[:] = [one for one in given if in_time(one.answer, now) is not None]
                given.insert(0, session_yes(standing.question, answer, now))
            return standing

    def is_waiting(self, question_id: str) -> bool:
        """Whether nobody has answered a question yet."""
        standing = self._standings.get(question_id)
        return standing is not None and standing.state == "waiting"

    def standing(self, question_id: str) -> Standing | None:
        """Where a question stands."""
        standing = self._standings.get(question_id)
        return None if standing is None else seen_at(standing, self._clock())

    def use(self, question: Question) -> bool:
        """Use up the yes to exactly this question; False where there is none, or it was used before."""
        with self._lock:
            standing = self._standings.get(question.id)
            if (
                standing is None
                or standing.state != "approved"
                or bound(standing.question) != bound(question)
            ):
                return False
            if self._clock() >= standing.question.expires_at:
                return False
            self._standings[question.id] = replace(standing, state="used")
            return True

    def withdraw(self, question_id: str) -> None:
        """The caller does not wait for an answer any more; one that was given stays."""
        with self._lock:
            standing = self.standing(question_id)
            if standing is not None and standing.state == "waiting":
                self._standings[question_id] = replace(standing, state="withdrawn")

    def waiting(self) -> list[Standing]:
        """The questions that wait for an answer, oldest first."""
        with self._lock:
            return self._waiting()

    def _waiting(self) -> list[Standing]:
        now = self._clock()
        return [one for one in self._standings.values() if seen_at(one, now).state == "waiting"]

    def _forget_oldest(self, agent: str) -> None:
        """Of what is over, keep the newest of an agent: it may ask and give up as often as it likes."""
        sizes: list[int] = []
        for key, one in reversed(list(self._standings.items())):
            if one.question.agent == agent and one.state in OVER:
                if has_room(sizes, _size(one.question)):
                    sizes.append(_size(one.question))
                else:
                    del self._standings[key]

    def session_answer(self, question: Question) -> Answer | None:
        """The yes for the rest of the session that covers a question."""
        given = self._sessions.get(session_key(question), ()) if question.session else ()
        return covering(given, question, self._clock())

    def rules(self) -> list[Rule]:
        """The rules that have not ended."""
        now = self._clock()
        return [rule for rule in self._rules.values() if now < rule.ends_at]

    def add_rule(self, rule: Rule) -> None:
        """Remember a rule."""
        with self._lock:
            self._rules[rule.id] = rule

    def revoke(self, rule_id: str) -> bool:
        """Forget a rule; whether there was one."""
        with self._lock:
            return self._rules.pop(rule_id, None) is not None


def _size(question: Question) -> int:
    """How much a question holds: its arguments, and what they would change."""
    return len(question.arguments) + len(question.difference)
