"""`toolkeep deny`: deny a call that waits."""

from pathlib import Path

import click

from toolkeep.approval.question import Answer
from toolkeep.approval.question_text import name
from toolkeep.cli.approval_prompt import person
from toolkeep.cli.approvals import approvals_of, only_question, take, waiting_question
from toolkeep.cli.options import common, print_json, project, say_done


@click.command("deny")
@click.argument("question_id", metavar="[ID]", required=False)
@click.argument("reason", nargs=-1)
@project
@common
def command(question_id: str | None, reason: tuple[str, ...], project: Path | None, *, as_json: bool) -> None:
    """Deny the waiting call with this ID, or whose id starts with it. The model is told the REASON.

    Without an ID, the only call that waits; if there are several, they are listed.
    """
    said = " ".join(reason).encode("utf-8", "replace").decode()
    answer = Answer(verdict="deny", approver=f"operator:{person()}", way="command", reason=said)
    with approvals_of(project) as approvals:
        if question_id is None:
            question = only_question(approvals, project)
        else:
            question = waiting_question(approvals, question_id, project)
        standing = take(approvals, question, answer)
    if as_json:
        print_json({"id": question.id, "state": standing.state, "tool": question.tool, "reason": said})
    else:
        say_done(f"denied {name(question.tool)}, called by {name(question.agent)}")
