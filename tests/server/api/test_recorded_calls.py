"""Outcomes of calls in lists: those that the page of the call tells."""

from typing import Any

import pytest

from toolkeep.audit.call_verdict import verdict_of
from toolkeep.audit.entry import Entry
from toolkeep.server.api.recorded_calls import CallSummary, summary_of

pytestmark = pytest.mark.spec("WEB-2")

INVOKED = {"type": "ToolInvoked", "agent": "a", "tool": "t"}
DONE = {"type": "ToolCompleted", "status": "error"}
UNKNOWN = {**DONE, "codes": ["ACODE-TSR-040"]}
LATE = {"type": "AnsweredLate", "status": "error", "is_settled": False}


def summary(*records: dict[str, Any]) -> CallSummary:
    entries = [Entry(index=place, previous="", record=record) for place, record in enumerate(records)]
    return CallSummary(records=[summary_of(entry, {}) for entry in reversed(entries)])


@pytest.mark.parametrize(
    ("later", "outcome"),
    [
        ([], "under way"),
        ([{**INVOKED, "status": "repeated", "repeats": "0" * 32}], "repeated"),
        ([{**INVOKED, "status": "error", "codes": ["ACODE-TSR-004"]}], "refused"),
        ([{**DONE, "status": "ok"}], "ok"),
        ([{**DONE, "status": "pending"}], "pending"),
        ([{**DONE, "codes": ["ACODE-TSR-032"]}], "error"),
        ([UNKNOWN], "unknown"),
        ([{**LATE, "status": "ok"}], "under way"),
        ([{**DONE, "codes": ["ACODE-TSR-031"]}], "refused"),
        ([UNKNOWN, {**LATE, "status": "error", "codes": ["ACODE-TSR-032"], "is_settled": True}], "error"),
        ([UNKNOWN, {**LATE, "status": "error", "codes": ["ACODE-TSR-033"]}], "unknown"),
        ([UNKNOWN, {**LATE, "status": "ok", "is_settled": True}], "ok"),
        ([{**DONE, "status": "ok"}, {**LATE, "status": "error", "codes": ["ACODE-TSR-032"]}], "ok"),
    ],
)
def test_a_list_tells_the_outcome_that_the_page_of_the_call_tells(
    later: list[dict[str, Any]], outcome: str
) -> None:
    records = [{**one, "call": "0" * 32} for one in (INVOKED, *later)]
    assert summary(*records).outcome == outcome
    assert verdict_of(records).outcome == {"error": "failed"}.get(outcome, outcome)


def test_a_record_of_the_log_about_itself_has_no_outcome() -> None:
    assert summary({"type": "OperatorChange", "what": "danger"}).outcome == ""
