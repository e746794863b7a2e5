"""`toolkeep approve show`: one call that waits, whole."""

import time
from pathlib import Path

import click

from toolkeep.approval.view import render_question
from toolkeep.cli.approve.queue import approvals_of, question_data, screen_width, waiting_question
from toolkeep.cli.options import common, print_json, project


@click.command("show")
@click.argument("question_id", metavar="ID")
@project
@common
def command(question_id: str, project: Path | None, *, as_json: bool) -> None:
    """Show the call that waits under ID, or under what ID begins with."""
    with approvals_of(project) as approvals:
        question = waiting_question(approvals, question_id)
    if as_json:
        print_json(question_data(question))
        return
    for line in render_question(question, now=time.time(), width=screen_width(otherwise=80)):
        click.echo(line.text)
