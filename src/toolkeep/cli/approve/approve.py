"""`toolkeep approve approve`: a person says yes to a call that waits in another process."""

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec.structs import replace

from toolkeep.approval.question import Answer, Question, Reach, Standing
from toolkeep.approval.view import moment, name, render_question
from toolkeep.cli.approve.queue import NotAnswered, approvals_of, check, take, waiting_question
from toolkeep.cli.asking import YES, agreed, can_ask, columns, person, show, typed, typed_name
from toolkeep.cli.options import common, is_terminal, print_json, project, say, say_done
from toolkeep.clock import iso
from toolkeep.limits import RULE_DAYS

_DAY_SECONDS = 86_400


@click.command("approve")
@click.argument("question_id", metavar="ID")
@click.option("--session", "for_session", is_flag=True, help="Such calls too, in the call's session.")
@click.option("--always", is_flag=True, help="Such calls too, as a rule with an end.")
@click.option(
    "--argument",
    "arguments",
    multiple=True,
    metavar="NAME=HOW",
    help="With --session or --always: any, equal, folder:…, host:…, domain:… or max:… for an argument.",
)
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
    arguments: tuple[str, ...],
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

    With --session or --always, a later call passes unasked if every argument is equal, but for those that the
    tool declares content or option. --argument frees or bounds one; what will pass is shown first.
    """
    if (for_session and always) or (days is not None and not always):
        raise click.UsageError("Say --session, or --always with or without --days.")
    if arguments and not (for_session or always):
        raise click.UsageError("--argument says what --session or --always covers.")
    if token_file is not None:
        if always or arguments:
            raise click.UsageError("--always and --argument need a terminal: a person sees what will pass.")
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
        answer = _asked(question, reach, days, chosen(arguments), project)
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


def chosen(arguments: Sequence[str]) -> dict[str, str]:
    """What --argument says, by the name of the argument."""
    made = {}
    for one in arguments:
        name_of, is_choice, how = one.partition("=")
        if not is_choice:
            raise click.UsageError("--argument is NAME=any, NAME=folder:/srv/docs and the like.")
        made[name_of] = how
    return made


def _asked(
    question: Question, reach: Reach, days: int | None, arguments: dict[str, str], project: Path | None
) -> Answer:
    """The person's yes; raises where there is none, or it would not count."""
    answer = Answer(
        verdict="approve",
        approver=f"operator:{person()}",
        way="command",
        reach=reach,
        typed_name=question.tool if question.acts > 1 else "",
        arguments=arguments,
    )
    if days is not None:
        answer = replace(answer, days=days)
    check(question, answer)
    show(render_question(question, now=time.time(), width=columns()))
    said = asyncio.run(_agreed(question, answer, project))
    if said is None:
        hint = f"the call still waits; to refuse it: toolkeep approve deny {question.id}"
        raise NotAnswered("you did not say yes", hint=hint)
    return said


async def _agreed(question: Question, answer: Answer, project: Path | None) -> Answer | None:
    """The yes as the person gave it; None where there is none."""
    if answer.reach != "once":
        return await agreed(question, answer, project)
    line = await typed("Approve this call, once? [y]es, [n]o: ")
    if (line or "").strip().casefold() not in YES:
        return None
    return answer if question.acts == 1 or await typed_name(question) else None


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
