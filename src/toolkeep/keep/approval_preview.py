"""Dry run of approval: would this permitted call need a person, and why? Nobody is asked."""

import asyncio
from typing import NamedTuple

from toolkeep.approval.approval_store import Approvals, MemoryApprovals
from toolkeep.approval.approve import ApprovalGate, Asked
from toolkeep.approval.question import Answer, Question, Rule
from toolkeep.calls import PermittedCall
from toolkeep.json_values.canonical import canonical_bytes


class ApprovalPreview(NamedTuple):
    """The result of the dry run."""

    why: tuple[str, ...] = ()
    """Why a person would be asked now; empty if nobody would be."""
    acts: int = 0
    """How many times the person would have to confirm."""
    earlier: str = ""
    """The earlier approval that covers the call."""


class _Earlier(MemoryApprovals):
    """The stored answers and rules, read-only: what is asked here stays in memory."""

    def __init__(self, kept: Approvals | None) -> None:
        super().__init__()
        self._kept = kept

    def session_answer(self, question: Question) -> Answer | None:
        return None if self._kept is None else self._kept.session_answer(question)

    def rules(self) -> list[Rule]:
        return [] if self._kept is None else self._kept.rules()


def preview_approval_need(
    call: PermittedCall, kept: Approvals | None, *, is_paranoid: bool
) -> ApprovalPreview:
    """What the approval stage would do with the call, with a stub for the person."""
    questions: list[Question] = []

    def stand_in(question: Question) -> bool:
        questions.append(question)
        return False

    asker = ApprovalGate(_Earlier(kept), approver=stand_in, is_paranoid=is_paranoid)
    asked = asyncio.run(asker.ask(call, _sealed(call)))
    if questions:
        return ApprovalPreview(why=questions[0].why, acts=questions[0].acts)
    if isinstance(asked, Asked) and (approval := asked.approval) is not None:
        which = f" {approval.id}" if approval.id else ""
        return ApprovalPreview(earlier=f"{approval.approver} agreed before, by {approval.way}{which}")
    return ApprovalPreview()


def _sealed(call: PermittedCall) -> bytes:
    """The arguments without secrets: there is no key here, so an approval bound to a secret covers
    nothing."""
    return canonical_bytes(call.tool.arguments.secrecy.replace(call.checked.arguments, lambda _: {}))
