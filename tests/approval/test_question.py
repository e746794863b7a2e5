"""Which answers may be given to which questions (POL-4)."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.approval.examples import BEGAN, NO, QUESTION, YES, question, yes
from toolkeep.approval.question import Answer, AnswerRefused, Question, check_answer
from toolkeep.calls import Identity

pytestmark = pytest.mark.spec("POL-4")

ADA = Identity(issuer="https://a", subject="ada", token_id="1")
BEHALF = "nobody can answer a call that is made on their own behalf"
SECOND = question(danger="critical", acts=2, acts_done=1)

TAKEN: dict[str, tuple[Question, Answer]] = {
    "yes": (QUESTION, YES),
    "yes of another subject": (question(identity=ADA), yes(identity=replace(ADA, subject="bob"))),
    "yes of the same name at another issuer": (question(identity=ADA), yes(identity=replace(ADA, issuer="https://b"))),
    "yes of somebody whom no issuer knows": (question(identity=ADA), YES),
    "no": (QUESTION, NO),
    "no to the second act without a name": (SECOND, NO),
    "no that would be remembered": (question(danger="critical"), Answer(verdict="deny", approver="ada", way="x")),
    "for the session": (QUESTION, yes(reach="session")),
    "as a rule": (QUESTION, yes(reach="rule")),
    "first act without a name": (question(danger="critical", acts=2), YES),
    "second act with the name": (SECOND, yes(typed_name="greet")),
    "one act with another name": (QUESTION, yes(typed_name="anything")),
    **{f"{danger} for the session": (question(danger=danger), yes(reach="session")) for danger in ("safe", "low")},
    **{f"{danger} once": (question(danger=danger), YES) for danger in ("high", "critical")},
}  # fmt: skip


@pytest.mark.parametrize("case", TAKEN)
def test_an_answer_that_fits_is_taken(case: str) -> None:
    asked, answer = TAKEN[case]
    check_answer(asked, answer, BEGAN)


OWN = "an agent cannot approve its own call"
LATE = "this approval request has expired"
NAME = "confirm by typing the name of the tool, greet"

REFUSED: dict[str, tuple[Question, Answer, str]] = {
    "yes of the agent itself": (QUESTION, yes(approver="planner"), OWN),
    "no of the agent itself": (QUESTION, Answer(verdict="deny", approver="planner", way="x"), OWN),
    "yes of the agent in other letters": (QUESTION, yes(approver="Planner "), OWN),
    "yes of the subject it is for": (question(identity=ADA), yes(identity=replace(ADA, client="page", token_id="7")), BEHALF),
    "no of the subject it is for": (question(identity=ADA), Answer(verdict="deny", approver="x", way="x", identity=ADA), BEHALF),
    "yes of nobody": (QUESTION, yes(approver=" "), "the answer has no approver"),
    "high for the session": (question(danger="high"), yes(reach="session"), "a tool of danger high needs approval every time"),
    "high as a rule": (question(danger="high"), yes(reach="rule"), "a tool of danger high needs approval every time"),
    "critical for the session": (question(danger="critical"), yes(reach="session"), "a tool of danger critical needs approval every time"),
    "critical as a rule": (question(danger="critical"), yes(reach="rule"), "a tool of danger critical needs approval every time"),
    "danger that nobody knows": (question(danger="unheard of"), yes(reach="rule"), "a tool of danger unheard of needs approval every time"),
    "session of a call without one": (question(session=""), yes(reach="session"), "the call belongs to no session"),
    "rule about no argument of the call": (QUESTION, yes(reach="rule", arguments={"x": "any"}), "the call has no argument 'x'"),
    "session with a bound that the call breaks": (QUESTION, yes(reach="session", arguments={"name": "max:1"}), "'max:1' does not cover 'name' of this call"),
    "second act without the name": (SECOND, YES, NAME),
    "second act with another name": (SECOND, yes(typed_name="Greet"), NAME),
    "second act with more than the name": (SECOND, yes(typed_name="greet "), NAME),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_an_answer_that_may_not_be_given_is_refused_with_its_reason(case: str) -> None:
    asked, answer, reason = REFUSED[case]
    with pytest.raises(AnswerRefused) as refused:
        check_answer(asked, answer, BEGAN)
    assert refused.value.reason == reason


@pytest.mark.parametrize("answer", [YES, NO], ids=["yes", "no"])
@pytest.mark.parametrize(("after_s", "is_late"), [(299.9, False), (300.0, True), (301.0, True)])
def test_an_answer_counts_until_the_question_expires(answer: Answer, after_s: float, is_late: bool) -> None:
    if not is_late:
        check_answer(QUESTION, answer, BEGAN + after_s)
        return
    with pytest.raises(AnswerRefused) as refused:
        check_answer(QUESTION, answer, BEGAN + after_s)
    assert refused.value.reason == LATE


@pytest.mark.parametrize(
    ("changes", "wants"),
    [
        ({}, False),
        ({"acts_done": 1}, False),
        ({"acts": 2}, False),
        ({"acts": 2, "acts_done": 1}, True),
        ({"acts": 2, "acts_done": 2}, False),
    ],
)
def test_only_the_second_of_two_acts_wants_the_name(changes: dict[str, Any], wants: bool) -> None:
    assert question(**changes).wants_name is wants


@pytest.mark.parametrize(
    ("danger", "may_be"),
    [("safe", True), ("low", True), ("medium", True), ("high", False), ("critical", False), ("", False)],
)
def test_only_little_danger_may_be_remembered(danger: str, may_be: bool) -> None:
    assert question(danger=danger).may_be_remembered is may_be


def test_the_arguments_are_data_again() -> None:
    assert question(arguments='{"n": 1, "s": "é"}').argument_data == {"n": 1, "s": "é"}
