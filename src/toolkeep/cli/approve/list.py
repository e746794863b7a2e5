"""`toolkeep approve list`: the calls that wait for a person."""

import time
from pathlib import Path

import click

from toolkeep.approval.outline import summary
from toolkeep.approval.question import Question
from toolkeep.approval.view import duration, fit, name
from toolkeep.cli.approve.queue import approvals_of, question_data, screen_width
from toolkeep.cli.options import common, print_json, project, say

_FIELDS = ("id", "asked_at", "expires_at", "agent", "session", "tool", "danger", "arguments")
_NAME_WIDTH = 32
_WIDTH = 160


@click.command("list")
@project
@common
def command(project: Path | None, *, as_json: bool) -> None:
    """List the calls that wait, oldest first: id, age, time left, danger, tool, agent and arguments."""
    with approvals_of(project) as approvals:
        questions = [standing.question for standing in approvals.waiting()]
    if as_json:
        whole = map(question_data, questions)
        print_json([{field: data[field] for field in _FIELDS} for data in whole])
        return
    now, width = time.time(), screen_width(otherwise=_WIDTH)
    for question in questions:
        say(fit(_row(question, now), width))
    if not questions:
        say("nothing waits")


def _row(question: Question, now: float) -> str:
    """Ours first: whatever the names hold, they come after it."""
    age = f"{duration(now - question.asked_at)} ago"
    left = f"{duration(question.expires_at - now)} left"
    tool, agent = fit(name(question.tool), _NAME_WIDTH), fit(name(question.agent), _NAME_WIDTH)
    about = summary(question.argument_data, _WIDTH)
    return f"{question.id}  {age:>15}  {left:>16}  {question.danger:<8}  {tool}  {agent}  {about}"
