"""`toolkeep approve`: approve a call that waits, from another terminal or with a token."""

import contextlib
import os
import shlex
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from toolkeep.approval.question import Answer, Question, Reach, Standing
from toolkeep.approval.question_text import moment, name, render_question, render_questions
from toolkeep.cli.approval_prompt import YES, agreed, can_ask, columns, person, pick, show, typed, typed_name
from toolkeep.cli.approvals import (
    NotAnswered,
    approvals_of,
    check,
    take,
    waiting_question,
    waiting_questions,
)
from toolkeep.cli.options import common, is_terminal, print_json, project, say, say_done
from toolkeep.errors import FileUnreadable
from toolkeep.host.clock import iso
from toolkeep.limits import RULE_DAYS, TOKEN_CHARS
from toolkeep.stores.api_tokens import Scope
from toolkeep.text.display import counted

if TYPE_CHECKING:
    from toolkeep.approval.approval_store import Approvals

_DAY_SECONDS = 86_400  # a unit, no bound


@click.command("approve")
@click.argument("question_id", metavar="[ID]", required=False)
@click.option(
    "--session", "for_session", is_flag=True, help="Also approve such calls for the rest of the session."
)
@click.option("--always", is_flag=True, help="Also approve such calls from now on, by a rule that expires.")
@click.option(
    "--argument",
    "arguments",
    multiple=True,
    metavar="NAME=HOW",
    help="With --session or --always, what an argument may be: any, equal, folder:…, host:…, domain:…, max:…",
)
@click.option("--days", type=click.IntRange(1, RULE_DAYS), help="Days until the rule expires; 30 by default.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Approve with the token in this file, which needs the scope approve; no terminal needed.",
)
@click.option(
    "--tool-name", default="", help="With --token-file: the tool's name, to confirm a critical call."
)
@project
@common
def command(
    question_id: str | None,
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
    """Show the waiting call with this ID, or whose id starts with it, and ask whether to approve it.

    Without an ID, the only call that waits; if there are several, they are listed. With the id of a response,
    or if all that wait are of one response, all of its calls: approve all of them, or some by their numbers.

    Needs a terminal, or a token with the scope approve whose agent is not the one that calls. A critical call
    needs a second confirmation.

    With --session or --always, later calls run without asking if their arguments are equal; arguments that
    the tool declares as content or option may differ. --argument allows more or less for one argument. You
    see what will be allowed before you confirm.
    """
    if (for_session and always) or (days is not None and not always):
        raise click.UsageError("Use --session or --always, not both; --days goes with --always.")
    if arguments and not (for_session or always):
        raise click.UsageError("--argument needs --session or --always.")
    if token_file is not None:
        if always or arguments:
            raise click.UsageError("--always and --argument need a terminal, where you confirm the rule.")
        if question_id is None:
            raise click.UsageError("--token-file needs an ID.")
        standing, answer = _by_token(
            question_id, token_file, "session" if for_session else "once", tool_name, project
        )
        _finish(standing, answer, as_json=as_json)
        return
    if not (can_ask() and is_terminal(sys.stdout)):
        raise NotAnswered(
            "approving needs a terminal: stdin, stdout or stderr is redirected",
            hint="run it in a terminal, or pass --token-file FILE; `toolkeep deny` needs neither",
        )
    reach: Reach = "rule" if always else "session" if for_session else "once"
    with approvals_of(project) as approvals:
        questions = waiting_questions(approvals, question_id, project)
        if len(questions) > 1 and reach == "once":
            _approve_several(approvals, questions, as_json=as_json)
            return
        if len(questions) > 1:
            raise click.UsageError("--session and --always need the ID of one call.")
        [question] = questions
        answer = _asked(question, reach, days, chosen(arguments), project)
        standing = _given(approvals, question, answer)
    _finish(standing, answer, as_json=as_json)


def _given(approvals: "Approvals", question: Question, answer: Answer) -> Standing:
    """Store an approval, as often as the call needs one."""
    for _ in range(question.acts - question.acts_done):
        standing = take(approvals, question, answer)
    return standing


def _approve_several(approvals: "Approvals", questions: Sequence[Question], *, as_json: bool) -> None:
    """Ask which calls of one response to approve; the others still wait."""
    import asyncio

    for question in questions:
        check(question, _yes(question, "once"))
    show(render_questions(questions, now=time.time(), width=columns()))
    approved = asyncio.run(_picked(questions))
    standings = [(_given(approvals, one, _yes(one, "once")), _yes(one, "once")) for one in approved]
    if not approved:
        hint = f"the calls still wait; deny them with: toolkeep deny {name(questions[0].response)}"
        raise NotAnswered("you did not approve the calls", hint=hint)
    if as_json:
        print_json([_data(standing, answer) for standing, answer in standings])
        return
    for standing, answer in standings:
        _finish(standing, answer, as_json=False)
    if rest := len(questions) - len(approved):
        say(f"  {counted(rest, 'call')} of the response still {'waits' if rest == 1 else 'wait'}.")


async def _picked(questions: Sequence[Question]) -> list[Question]:
    picked = await pick(len(questions), one_by_one=False)
    approved = [one for number, one in enumerate(questions, 1) if number in picked.approved]
    return [one for one in approved if one.acts == 1 or await _confirmed(one)]


async def _confirmed(question: Question) -> bool:
    show(render_question(question, now=time.time(), width=columns()))
    return await typed_name(question)


def _by_token(
    question_id: str, token_file: Path, reach: Reach, tool_name: str, project: Path | None
) -> tuple[Standing, Answer]:
    """Approve as the agent of a token; raises if it may not."""
    approver = approver_of(token_file, project)
    answer = Answer(verdict="approve", approver=approver, way="token", reach=reach, typed_name=tool_name)
    with approvals_of(project) as approvals:
        question = waiting_question(approvals, question_id, project)
        if question.acts > 1 and tool_name != question.tool:
            hint = f"confirm with: --tool-name {shlex.quote(question.tool)}"
            raise NotAnswered("a critical call must be confirmed with the name of its tool", hint=hint)
        check(question, answer)
        return _given(approvals, question, answer), answer


def chosen(arguments: Sequence[str]) -> dict[str, str]:
    """Parse --argument options into a mapping."""
    made = {}
    for one in arguments:
        name_of, is_choice, how = one.partition("=")
        if not is_choice:
            raise click.UsageError("Write --argument NAME=any or NAME=folder:/srv/docs, for example.")
        made[name_of] = how
    return made


def _asked(
    question: Question, reach: Reach, days: int | None, arguments: dict[str, str], project: Path | None
) -> Answer:
    """Ask the person; raises without an approval."""
    import asyncio

    answer = _yes(question, reach, arguments)
    if days is not None:
        answer = replace(answer, days=days)
    check(question, answer)
    show(render_question(question, now=time.time(), width=columns()))
    said = asyncio.run(_agreed(question, answer, project))
    if said is None:
        hint = f"the call still waits; deny it with: toolkeep deny {name(question.id)}"
        raise NotAnswered("you did not approve the call", hint=hint)
    return said


def _yes(question: Question, reach: Reach, arguments: dict[str, str] | None = None) -> Answer:
    return Answer(
        verdict="approve",
        approver=f"operator:{person()}",
        way="command",
        reach=reach,
        typed_name=question.tool if question.acts > 1 else "",
        arguments=arguments or {},
    )


async def _agreed(question: Question, answer: Answer, project: Path | None) -> Answer | None:
    """The approval as the person gave it, or None."""
    if answer.reach != "once":
        return await agreed(question, answer, project)
    line = await typed("Approve this call once? [y]es, [n]o: ")
    if (line or "").strip().casefold() not in YES:
        return None
    return answer if question.acts == 1 or await typed_name(question) else None


def _finish(standing: Standing, answer: Answer, *, as_json: bool) -> None:
    question = standing.question
    ends_at = time.time() + answer.days * _DAY_SECONDS
    if as_json:
        rule = {"rule": f"rule-{question.id}", "ends_at": iso(ends_at)} if answer.reach == "rule" else {}
        print_json({**_data(standing, answer), **rule})
        return
    say_done(f"approved {name(question.tool)}, called by {name(question.agent)}")
    if answer.reach == "rule":
        say(f"  Rule rule-{question.id} approves such calls until {moment(ends_at)}.")
        say(f"  Revoke it: toolkeep approvals revoke rule-{question.id}")


def _data(standing: Standing, answer: Answer) -> dict[str, str]:
    question = standing.question
    data = {"id": question.id, "state": standing.state, "tool": question.tool, "agent": question.agent}
    return {**data, "reach": answer.reach}


def approver_of(token_file: Path, project: Path | None) -> str:
    """The agent of the token in a file; raises if the token may not approve, or others can read it."""
    try:
        with token_file.open("rb") as file:
            # Of the open file, not of its path: the path could be swapped between the check and the read.
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(TOKEN_CHARS + 2).decode("ascii", "replace").strip()
    except OSError as error:
        raise FileUnreadable(str(token_file), error.strerror or "cannot be read") from error
    # Another user who can read the token could approve calls. As with ssh keys, it is refused.
    if stat.S_ISREG(mode) and stat.S_IMODE(mode) & 0o077:
        hint = f"run: chmod 600 {shlex.quote(str(token_file))}"
        raise NotAnswered("other users can access the token file", hint=hint)
    from toolkeep.keep.open import open_tokens, project_folder

    with contextlib.closing(open_tokens(project_folder(project))) as tokens:
        token = tokens.recognize(text)
    if token is None:
        hint = "make one: toolkeep token make NAME --scope approve"
        raise NotAnswered("the token in the file is unknown, expired or revoked", hint=hint)
    if not token.has_scope(Scope.APPROVE):
        hint = f"make one that has it: toolkeep token make {shlex.quote(token.name)} --scope approve"
        raise NotAnswered("the token in the file lacks the scope approve", hint=hint)
    return token.agent
