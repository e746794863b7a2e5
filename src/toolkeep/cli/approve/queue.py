"""The questions of a project that wait, and the errors of who answers them."""

import contextlib
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from toolkeep.approval.question import EXPIRED, Answer, AnswerRefused, Question, Standing, check_answer
from toolkeep.approval.view import moment, name
from toolkeep.assembly import open_state, project_folder
from toolkeep.cli.options import is_terminal
from toolkeep.clock import iso
from toolkeep.errors import Code, ToolkeepError
from toolkeep.limits import LISTED_NAMES
from toolkeep.storage.approvals import FileApprovals
from toolkeep.wording import echo_name, listing, shorten, visible

_REASON_CHARS = 500


class NotAnswered(ToolkeepError):
    """An answer that was not given, or does not count."""

    def __init__(self, reason: str, *, hint: str) -> None:
        super().__init__(Code.ANSWER_REFUSED, reason, hint=hint)


@contextlib.contextmanager
def approvals_of(project: Path | None) -> Iterator[FileApprovals]:
    """The approvals of a project, open."""
    state = open_state(project_folder(project))
    if state is None:
        hint = "set TOOLKEEP_HOME to the folder that the waiting keep uses"
        raise NotAnswered("there is no folder in which calls could wait", hint=hint)
    with contextlib.closing(FileApprovals(state.folder)) as approvals:
        yield approvals


def waiting_question(approvals: FileApprovals, given: str) -> Question:
    """The question of an id, or of its beginning; raises where it does not wait."""
    waiting = [standing.question for standing in approvals.waiting()]
    found = [question for question in waiting if given and question.id.startswith(given)]
    if len(found) == 1:
        return found[0]
    if found:
        raise NotAnswered(f"several calls that wait begin with {echo_name(given)!r}", hint=_these(found))
    if (standing := approvals.standing(given)) is not None:
        raise NotAnswered(f"{standing.question.id} {_why_not(standing)}", hint=_these(waiting))
    raise NotAnswered(f"no call {echo_name(given)!r} waits", hint=_these(waiting))


def take(approvals: FileApprovals, question: Question, answer: Answer) -> Standing:
    """Store an answer; raises where it does not count."""
    try:
        return approvals.answer(question.id, answer)
    except AnswerRefused as refused:
        raise NotAnswered(
            f"the answer does not count: {refused.reason}", hint=_otherwise(answer)
        ) from refused


def check(question: Question, answer: Answer) -> None:
    """Raise where an answer would not count, before anybody is asked for it."""
    try:
        check_answer(question, answer, time.time())
    except AnswerRefused as refused:
        raise NotAnswered(
            f"the answer would not count: {refused.reason}", hint=_otherwise(answer)
        ) from refused


def question_data(question: Question) -> dict[str, Any]:
    """A question as JSON data, whole."""
    data: dict[str, Any] = msgspec.to_builtins(question)
    return {
        **data,
        "arguments": question.argument_data,
        "asked_at": iso(question.asked_at),
        "expires_at": iso(question.expires_at),
    }


def screen_width(*, otherwise: int) -> int:
    """Of the terminal that shows our output: a row that it breaks goes on where our lines begin."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else otherwise


def _otherwise(answer: Answer) -> str:
    if answer.reach != "once":
        return "without --session and --always it can be approved once"
    return "somebody else has to answer, or the call has to be made again"


def _why_not(standing: Standing) -> str:
    if standing.state == "withdrawn":
        return "was cancelled by its caller"
    if standing.state in ("waiting", "expired"):
        ended = moment(standing.question.expires_at)
        return f"cannot be answered: {EXPIRED} (at {ended}; now it is {moment(time.time())})"
    who = name(standing.answer.approver) if standing.answer else "somebody"
    if standing.state == "denied":
        said = standing.answer.reason.strip() if standing.answer else ""
        return f"was denied by {who}" + (f": {shorten(visible(said), _REASON_CHARS)}" if said else "")
    return f"was approved by {who}" + (", and it ran" if standing.state == "used" else "")


def _these(questions: Sequence[Question]) -> str:
    shown = (f"{question.id} ({echo_name(question.tool)})" for question in questions)
    return f"these wait: {listing(shown, len(questions), LISTED_NAMES)}" if questions else "nothing waits"
