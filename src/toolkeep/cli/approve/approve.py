"""`toolkeep approve approve`: a person says yes to a call that waits in another process."""

import asyncio
import sys
import time
from pathlib import Path

import click
from msgspec.structs import replace

from toolkeep.approval.question import Answer, Question, Reach, Standing
from toolkeep.approval.view import moment, name, view
from toolkeep.cli.approve.queue import NotAnswered, approvals_of, check, take, waiting_question
from toolkeep.cli.asking import YES, agreed_days, can_ask, columns, person, show, typed, typed_name
from toolkeep.cli.options import common, is_terminal, print_json, project, say, say_done
from toolkeep.clock import iso
from toolkeep.limits import RULE_DAYS

_DAY_SECONDS = 86_400
_PROMPTS: dict[Reach, str] = {
    "once": "Approve this call, once? [y]es, [n]o: ",
    "session": "Approve every call of this tool in this session, whatever its arguments? [y]es, [n]o: ",
}


@click.command("approve")
@click.argument("question_id", metavar="ID")
@click.option("--session", "for_session", is_flag=True, help="Every call of the tool in the call's session.")
@click.option("--always", is_flag=True, help="Every such call, as a rule with an end.")
@click.option("--days", type=click.IntRange(1, RULE_DAYS), help="How long the rule holds; by default 30.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file with a token that has the scope approve, instead of a terminal.",
)
@click.option("--tool-name", default="", help="With a token: the tool's name, which a critical call needs.")
@project
@common
def command(
    question_id: str,
    days: int | None,
    token_file: Path | None,
    tool_name: str,
    project: Path | None,
    *,
    for_session: bool,
    always: bool,
    as_json: bool,
) -> None:
    """Show the call that waits under ID, or under what ID begins with, and say yes to it.

    Asks on a terminal, and nowhere else; or takes the word of whoever holds a token with the scope approve,
    which is not the agent that calls. A critical call is asked about twice.
    """
    if (for_session and always) or (days is not None and not always):
        raise click.UsageError("Say --session, or --always with or without --days.")
    if token_file is not None:
        if always:
            raise click.UsageError("--always needs a terminal: a person has to see the rule.")
        standing, answer = _by_token(
            question_id, token_file, "session" if for_session else "once", tool_name, project
        )
        _finish(standing, answer, as_json=as_json)
        return
    if not (can_ask() and is_terminal(sys.stdout)):
        raise NotAnswered(
            "nobody is there to ask",
            hint="run it on a terminal, nothing redirected, or give --token-file; "
            "`toolkeep approve deny` needs neither",
        )
    reach: Reach = "rule" if always else "session" if for_session else "once"
    with approvals_of(project) as approvals:
        question = waiting_question(approvals, question_id)
        answer = _asked(question, reach, days, project)
        for _ in range(question.acts - question.acts_done):
            standing = take(approvals, question, answer)
    _finish(standing, answer, as_json=as_json)


def _by_token(
    question_id: str, token_file: Path, reach: Reach, tool_name: str, project: Path | None
) -> tuple[Standing, Answer]:
    """The yes of a token's agent, taken; raises where it does not count."""
    from toolkeep.cli.approve.bearer import approver_of

    approver = approver_of(token_file, project)
    answer = Answer(verdict="approve", approver=approver, way="token", reach=reach, typed_name=tool_name)
    with approvals_of(project) as approvals:
        question = waiting_question(approvals, question_id)
        if question.acts > 1 and tool_name != question.tool:
            hint = "say --tool-name with the exact name of the tool"
            raise NotAnswered("a critical call is approved by typing its tool's name", hint=hint)
        check(question, answer)
        for _ in range(question.acts - question.acts_done):
            standing = take(approvals, question, answer)
    return standing, answer


def _asked(question: Question, reach: Reach, days: int | None, project: Path | None) -> Answer:
    """The person's yes; raises where there is none, or it would not count."""
    answer = Answer(
        verdict="approve",
        approver=f"operator:{person()}",
        way="command",
        reach=reach,
        typed_name=question.tool if question.acts > 1 else "",
    )
    check(question, answer)
    show(view(question, now=time.time(), width=columns()))
    agreed = asyncio.run(_agreed(question, reach, days, project))
    if agreed is None:
        hint = f"the call still waits; to refuse it: toolkeep approve deny {question.id}"
        raise NotAnswered("you did not say yes", hint=hint)
    return replace(answer, days=agreed)


async def _agreed(question: Question, reach: Reach, days: int | None, project: Path | None) -> int | None:
    """The days that a rule holds, one where there is none; None where the person did not say yes."""
    if reach == "rule":
        return await agreed_days(question, project, days)
    line = await typed(_PROMPTS[reach])
    if (line or "").strip().casefold() not in YES:
        return None
    return 1 if question.acts == 1 or await typed_name(question) else None


def _finish(standing: Standing, answer: Answer, *, as_json: bool) -> None:
    question = standing.question
    data = {"id": question.id, "state": standing.state, "tool": question.tool, "agent": question.agent}
    ends_at = time.time() + answer.days * _DAY_SECONDS
    if as_json:
        rule = {"rule": f"rule-{question.id}", "ends_at": iso(ends_at)} if answer.reach == "rule" else {}
        print_json({**data, "reach": answer.reach, **rule})
        return
    say_done(f"approved {name(question.tool)}, called by {name(question.agent)}")
    if answer.reach == "rule":
        say(f"  It adds rule-{question.id}, until {moment(ends_at)}.")
        say(f"  To end it sooner: toolkeep approve revoke rule-{question.id}")
