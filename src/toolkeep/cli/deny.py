"""`toolkeep deny`: deny a call that waits."""

from pathlib import Path

import click

from toolkeep.approval.question import Answer
from toolkeep.approval.question_text import name
from toolkeep.cli.approval_prompt import person
from toolkeep.cli.approvals import approvals_of, take, waiting_questions
from toolkeep.cli.options import common, print_json, project, say_done


@click.command("deny")
@click.argument("question_id", metavar="[ID]", required=False)
@click.argument("reason", nargs=-1)
@project
@common
def command(question_id: str | None, reason: tuple[str, ...], project: Path | None, *, as_json: bool) -> None:
    """Deny the waiting call with this ID, or whose id starts with it. The model is told the REASON.

    Without an ID, the only call that waits; if there are several, they are listed. With the id of a response,
    or if all that wait are of one response, all of its calls.
    """
    said = " ".join(reason).encode("utf-8", "replace").decode()
    answer = Answer(verdict="deny", approver=f"operator:{person()}", way="command", reason=said)
    with approvals_of(project) as approvals:
        questions = waiting_questions(approvals, question_id, project)
        standings = [take(approvals, question, answer) for question in questions]
    if as_json:
        data = [
            {"id": one.question.id, "state": one.state, "tool": one.question.tool, "reason": said}
            for one in standings
        ]
        print_json(data if len(data) > 1 else data[0])
        return
    for question in questions:
        say_done(f"denied {name(question.tool)}, called by {name(question.agent)}")
