"""A person says yes once for the session, or always; what an attacker makes of it afterwards (POL-4)."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import pytest

from toolkeep import Code, Keep, Touches, tool
from toolkeep.approval.question import Answer, Question
from toolkeep.approval.question_text import render_question
from toolkeep.storage.log.file_records import FileRecord
from toolkeep.stores.records import MemoryRecord

pytestmark = pytest.mark.spec("POL-4")


class Person:
    """Says yes for good to the first question, and no to every other."""

    def __init__(self, reach: Any) -> None:
        self.questions: list[Question] = []
        self._reach = reach

    def __call__(self, question: Question) -> Answer:
        self.questions.append(question)
        if len(self.questions) == 1:
            return Answer(verdict="approve", approver="ada", way="desk", reach=self._reach)
        return Answer(verdict="deny", approver="ada", way="desk", reason="not to her")


@tool(danger="medium")
def send_money(to: list[str], amount: float, memo: str = "") -> str:
    """Send money."""
    return "sent"


@tool(danger="medium", side_effects=["ProcessSpawn"], capabilities=["process.spawn"])
def shell(line: Annotated[str, Touches("process.spawn")]) -> str:
    """Run a command line."""
    return line


def called(keep: Keep, name: str, arguments: dict[str, Any]) -> Code | None:
    return asyncio.run(keep.call(name, arguments, agent="planner", session="s1")).code


@pytest.mark.parametrize("reach", ["session", "rule"])
def test_a_yes_to_one_recipient_is_none_to_another(reach: str) -> None:
    person = Person(reach)
    keep = Keep(approver=person)
    keep.register(send_money)
    keep.declare_agent("planner")
    mine = {"to": ["ada"], "amount": 5}
    assert called(keep, "send_money", mine) is None
    assert called(keep, "send_money", mine) is None
    assert len(person.questions) == 1
    for injected in ({**mine, "to": ["eve"]}, {**mine, "to": ["ada", "eve"]}, {**mine, "amount": 5_000}):
        assert called(keep, "send_money", injected) is Code.APPROVAL_DENIED


@pytest.mark.parametrize("reach", ["session", "rule"])
def test_a_yes_to_one_command_line_is_none_to_another(reach: str) -> None:
    person = Person(reach)
    keep = Keep(approver=person)
    keep.register(shell)
    keep.declare_agent("planner", capabilities=["process.spawn:/bin/bash"])
    assert called(keep, "shell", {"line": '/bin/bash -c "echo hello"'}) is None
    assert called(keep, "shell", {"line": '/bin/bash -c "echo hello"'}) is None
    assert called(keep, "shell", {"line": '/bin/bash -c "rm -rf /"'}) is Code.APPROVAL_DENIED
    assert len(person.questions) == 2


def test_a_long_argument_does_not_hide_the_one_that_matters() -> None:
    person = Person("once")
    keep = Keep(approver=person)
    keep.register(send_money)
    keep.declare_agent("planner")
    called(keep, "send_money", {"memo": "x" * 200_000, "to": ["eve"], "amount": 5})
    lines = [line.text for line in render_question(person.questions[0], now=0.0)]
    assert any('"eve"' in line for line in lines)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_denied_call_stays_denied_for_whoever_looks_later(kind: str, tmp_path: Path) -> None:
    record = MemoryRecord() if kind == "memory" else FileRecord(tmp_path / "state")

    def deny(_: Question) -> Answer:
        return Answer(verdict="deny", approver="ada", way="desk", reason="not to her")

    with Keep(approver=deny, record=lambda: record) as keep:
        keep.register(send_money)
        questions: list[str] = []
        keep.subscribe(lambda event: questions.append(getattr(event, "approval_id", "")))
        result = asyncio.run(keep.call("send_money", {"to": ["eve"], "amount": 5}))
        assert result.code is Code.APPROVAL_DENIED
        standing = record.approvals.standing(next(filter(None, questions)))
        assert standing is not None
        assert standing.answer is not None
        assert (standing.state, standing.answer.approver, standing.answer.reason) == (
            "denied",
            "ada",
            "not to her",
        )
