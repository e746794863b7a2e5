"""A call of a timeline: what changed before it, who answered, and what is told of it."""

from typing import Any

import pytest

from toolkeep.audit.call_timeline import Change, SessionFacts, changes_between, timeline_call
from toolkeep.errors import Code


def facts(*, opened: bool = False, secret: bool = False) -> SessionFacts:
    return SessionFacts(opened=opened, secret=secret, origins={}, measures={}, owner="ada\nown\ns")


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, facts(), []),
        (None, facts(opened=True), ["opened"]),
        (facts(), facts(opened=True, secret=True), ["opened", "secret"]),
        (facts(opened=True), facts(opened=True), []),
        (facts(opened=True), facts(), ["clean"]),
        (facts(opened=True), None, []),
    ],
)
@pytest.mark.spec("FLO-7")
def test_a_change_of_the_state_is_told_once(
    before: SessionFacts | None, now: SessionFacts | None, expected: list[Change]
) -> None:
    assert changes_between(before, now) == expected


INVOKED: dict[str, Any] = {
    "type": "ToolInvoked", "call": "c", "agent": "ada", "tool": "send", "time": "t1", "argument_hash": "a",
    "has_arguments": True,
}  # fmt: skip
ANSWERED: dict[str, Any] = {
    "type": "Approval", "call": "c", "approver": "bo", "way": "page", "time": "t2", "asked_at": "t0", "waited_ms": 7,
}  # fmt: skip


@pytest.mark.parametrize(
    ("approval", "end", "expected"),
    [
        ({}, {"type": "ToolCompleted", "status": "ok", "result_hash": "r"}, ("approved", 20, "ok")),
        ({"codes": [Code.APPROVAL_DENIED.value], "status": "error"}, None, ("denied", None, "refused")),
        (
            {"codes": [Code.APPROVAL_NEEDED.value], "approver": "", "status": "error"},
            None,
            ("unanswered", None, "refused"),
        ),
    ],
)
def test_a_call_tells_who_answered_and_what_the_model_was_shown(
    approval: dict[str, Any], end: dict[str, Any] | None, expected: tuple[str, int | None, str]
) -> None:
    records = [INVOKED, ANSWERED | approval, *([end] if end else [])]
    call = timeline_call(records, None, {"a": 10, "r": 20})
    assert call.answer is not None
    assert (call.answer.verdict, call.shown_bytes, call.outcome) == expected
    assert (call.time, call.sent_bytes, call.answer.waited_ms) == ("t0", 10, 7)
    assert "ada called" not in call.why
