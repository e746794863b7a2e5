"""What people are asked, and say, is told as events (STO-2)."""

import asyncio
from collections.abc import Callable

import pytest

from toolkeep import Keep, tool
from toolkeep.approval.question import Answer, Question
from toolkeep.events import ApprovalDecided, ApprovalRequested, Event

pytestmark = pytest.mark.spec("STO-2", "POL-4")


@tool(danger="medium")
def order(title: str) -> str:
    """Order a book.

    Args:
        title: The title.
    """
    return title


def told_by(approver: Callable[[Question], Answer | bool | None]) -> list[Event]:
    told: list[Event] = []
    with Keep(approver=approver) as keep:
        keep.register(order)
        keep.subscribe(told.append)
        keep.call_sync("order", {"title": "Dune"})
    return [event for event in told if isinstance(event, (ApprovalRequested, ApprovalDecided))]


@pytest.mark.parametrize(
    ("answer", "verdict", "approver"),
    [
        (Answer(verdict="approve", approver="ada", way="web"), "approved", "ada"),
        (Answer(verdict="deny", approver="ada", way="web"), "denied", "ada"),
        (True, "approved", "program"),
        (None, "expired", ""),
    ],
)
def test_a_question_and_its_end_are_told(answer: Answer | bool | None, verdict: str, approver: str) -> None:
    requested, decided = told_by(lambda _: answer)
    assert isinstance(requested, ApprovalRequested)
    assert isinstance(decided, ApprovalDecided)
    assert (requested.tool_name, requested.agent, requested.danger) == ("order", "local", "medium")
    assert requested.expires_at > requested.timestamp
    assert (decided.approval_id, decided.verdict, decided.approver) == (
        requested.approval_id,
        verdict,
        approver,
    )


def test_a_caller_who_gives_up_withdraws_the_question() -> None:
    asked = asyncio.Event()
    told: list[Event] = []

    async def never(_: Question) -> None:
        asked.set()
        await asyncio.Event().wait()

    async def give_up() -> None:
        with Keep(approver=never) as keep:
            keep.register(order)
            keep.subscribe(told.append)
            call = asyncio.ensure_future(keep.call("order", {"title": "Dune"}))
            await asked.wait()
            call.cancel()
            await asyncio.wait([call])

    asyncio.run(give_up())
    assert [event.verdict for event in told if isinstance(event, ApprovalDecided)] == ["withdrawn"]
