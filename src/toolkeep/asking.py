"""Whether a person would be asked about a permitted call, and why. Nobody is."""

import asyncio
from typing import NamedTuple

from toolkeep.approval.approve import Asked, Asker
from toolkeep.approval.question import Answer, Question, Rule
from toolkeep.approval.store import Approvals, MemoryApprovals
from toolkeep.calls import PermittedCall
from toolkeep.canonical import canonical_bytes


class Asking(NamedTuple):
    """What asking would come to."""

    why: tuple[str, ...] = ()
    """Why a person would be asked now; empty where nobody would be."""
    acts: int = 0
    """How many times the person would have to say yes."""
    earlier: str = ""
    """The yes that was given before and covers the call."""


class _Earlier(MemoryApprovals):
    """The answers and rules that are kept, to be read alone: what is asked here stays in memory."""

    def __init__(self, kept: Approvals | None) -> None:
        super().__init__()
        self._kept = kept

    def session_answer(self, question: Question) -> Answer | None:
        return None if self._kept is None else self._kept.session_answer(question)

    def rules(self) -> list[Rule]:
        return [] if self._kept is None else self._kept.rules()


def asking(call: PermittedCall, kept: Approvals | None, *, is_paranoid: bool) -> Asking:
    """What the approval stage itself would do with the call, with a stand-in for the person."""
    questions: list[Question] = []

    def stand_in(question: Question) -> bool:
        questions.append(question)
        return False

    asker = Asker(_Earlier(kept), approver=stand_in, is_paranoid=is_paranoid)
    asked = asyncio.run(asker.ask(call, _sealed(call)))
    if questions:
        return Asking(why=questions[0].why, acts=questions[0].acts)
    if isinstance(asked, Asked) and (approval := asked.approval) is not None:
        which = f" {approval.id}" if approval.id else ""
        return Asking(earlier=f"{approval.approver} agreed before, by {approval.way}{which}")
    return Asking()


def _sealed(call: PermittedCall) -> bytes:
    """The arguments without secrets: no key is at hand here, so what binds a secret covers nothing."""
    return canonical_bytes(call.tool.arguments.secrecy.replace(call.checked.arguments, lambda _: {}))
