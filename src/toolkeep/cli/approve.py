"""`toolkeep approve`: answer approval requests from a second terminal, and manage remembered approvals."""

import contextlib
import os
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec.structs import replace

from toolkeep.approval.argument_summary import summary
from toolkeep.approval.question import EXPIRED, Answer, AnswerRefused, Question, Reach, Standing, check_answer
from toolkeep.approval.question_text import duration, fit, moment, name, render_question, rows, until
from toolkeep.cli.approval_prompt import YES, agreed, can_ask, columns, person, show, typed, typed_name
from toolkeep.cli.main import CommandGroup
from toolkeep.cli.options import common, is_terminal, print_json, project, say, say_done
from toolkeep.errors import Code, FileUnreadable, ToolkeepError
from toolkeep.host.clock import iso
from toolkeep.limits import LISTED_NAMES, RULE_DAYS, TOKEN_CHARS
from toolkeep.stores.api_tokens import Scope
from toolkeep.text.display import echo_name, listing, shorten, visible

if TYPE_CHECKING:
    from toolkeep.storage.sqlite.approvals_db import SqliteApprovals


@click.group("approve", cls=CommandGroup)
def command() -> None:
    """Answer calls that wait for a person, from another terminal than theirs."""


_REASON_CHARS = 500  # of what an approver wrote, in one line of a terminal


class NotAnswered(ToolkeepError):
    """An answer that is missing or does not count."""

    def __init__(self, reason: str, *, hint: str) -> None:
        super().__init__(Code.ANSWER_REFUSED, reason, hint=hint)


@contextlib.contextmanager
def approvals_of(project: Path | None) -> "Iterator[SqliteApprovals]":
    """Open the approval store of a project."""
    from toolkeep.keep.open import open_state, project_folder
    from toolkeep.storage.sqlite.approvals_db import SqliteApprovals

    state = open_state(project_folder(project))
    if state is None:
        hint = "set TOOLKEEP_HOME to the folder that the waiting keep uses"
        raise NotAnswered("there is no folder in which calls could wait", hint=hint)
    with contextlib.closing(SqliteApprovals(state.folder)) as approvals:
        yield approvals


def waiting_question(approvals: "SqliteApprovals", given: str) -> Question:
    """Find a pending request by id or prefix; raises if there is none."""
    waiting = [standing.question for standing in approvals.waiting()]
    found = [question for question in waiting if given and question.id.startswith(given)]
    if len(found) == 1:
        return found[0]
    if found:
        raise NotAnswered(f"several calls that wait begin with {echo_name(given)!r}", hint=_these(found))
    if (standing := approvals.standing(given)) is not None:
        raise NotAnswered(f"{standing.question.id} {_why_not(standing)}", hint=_these(waiting))
    raise NotAnswered(f"no call {echo_name(given)!r} waits", hint=_these(waiting))


def take(approvals: "SqliteApprovals", question: Question, answer: Answer) -> Standing:
    """Store an answer; raises if it does not count."""
    try:
        return approvals.answer(question.id, answer)
    except AnswerRefused as refused:
        raise NotAnswered(
            f"the answer does not count: {refused.reason}", hint=_otherwise(answer)
        ) from refused


def check(question: Question, answer: Answer) -> None:
    """Raise if an answer would not count, before the person is asked."""
    try:
        check_answer(question, answer, time.time())
    except AnswerRefused as refused:
        raise NotAnswered(
            f"the answer would not count: {refused.reason}", hint=_otherwise(answer)
        ) from refused


def question_data(question: Question) -> dict[str, Any]:
    """An approval request as JSON data."""
    data: dict[str, Any] = msgspec.to_builtins(question)
    return {
        **data,
        "arguments": question.argument_data,
        "asked_at": iso(question.asked_at),
        "expires_at": iso(question.expires_at),
    }


def screen_width(*, otherwise: int) -> int:
    """Width of the terminal on stdout.

    Longer rows are cut: the rest of a wrapped row would start a line of its own, which could pass for ours.
    """
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


_LISTED_FIELDS = ("id", "asked_at", "expires_at", "agent", "session", "tool", "danger", "arguments")
_NAME_WIDTH = 32
_WIDTH = 160


@command.command("list", short_help="List the calls that wait.")
@project
@common
def list_waiting(project: Path | None, *, as_json: bool) -> None:
    """List the calls that wait, oldest first: id, age, time left, danger, tool, agent and arguments."""
    with approvals_of(project) as approvals:
        questions = [standing.question for standing in approvals.waiting()]
    if as_json:
        whole = map(question_data, questions)
        print_json([{field: data[field] for field in _LISTED_FIELDS} for data in whole])
        return
    now, width = time.time(), screen_width(otherwise=_WIDTH)
    for question in questions:
        say(fit(_row(question, now), width))
    if not questions:
        say("nothing waits")


def _row(question: Question, now: float) -> str:
    """One line; our own columns first, so that names cannot imitate them."""
    age = f"{duration(now - question.asked_at)} ago"
    left = f"{duration(question.expires_at - now)} left"
    tool, agent = fit(name(question.tool), _NAME_WIDTH), fit(name(question.agent), _NAME_WIDTH)
    about = summary(question.argument_data, _WIDTH)
    return f"{question.id}  {age:>15}  {left:>16}  {question.danger:<8}  {tool}  {agent}  {about}"


@command.command("show", short_help="Show a call that waits.")
@click.argument("question_id", metavar="ID")
@project
@common
def show_question(question_id: str, project: Path | None, *, as_json: bool) -> None:
    """Show the call that waits under ID, or under what ID begins with."""
    with approvals_of(project) as approvals:
        question = waiting_question(approvals, question_id)
    if as_json:
        print_json(question_data(question))
        return
    for line in render_question(question, now=time.time(), width=screen_width(otherwise=80)):
        click.echo(line.text)


_DAY_SECONDS = 86_400  # a unit, no bound


@command.command("approve", short_help="Say yes to a call.")
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
def approve_call(
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
    """Approve as the agent of a token; raises if that does not count."""
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
    """Parse --argument options into a mapping."""
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
    """Ask the person; raises without an approval that counts."""
    import asyncio

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
    """The approval as the person gave it, or None."""
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
        raise NotAnswered("the file with the token is open to other users", hint=hint)
    from toolkeep.keep.open import open_tokens, project_folder

    with contextlib.closing(open_tokens(project_folder(project))) as tokens:
        token = tokens.recognize(text)
    if token is None:
        hint = "make one: toolkeep token make NAME --scope approve"
        raise NotAnswered("the token in the file does not count", hint=hint)
    if not token.has_scope(Scope.APPROVE):
        hint = f"toolkeep token make {token.name} --scope approve"
        raise NotAnswered("the token in the file may not approve", hint=hint)
    return token.agent


@command.command("deny", short_help="Say no to a call.")
@click.argument("question_id", metavar="ID")
@click.argument("reason", nargs=-1)
@project
@common
def deny_call(question_id: str, reason: tuple[str, ...], project: Path | None, *, as_json: bool) -> None:
    """Say no to the call that waits under ID; the REASON goes back to the model that made it."""
    said = " ".join(reason).encode("utf-8", "replace").decode()
    answer = Answer(verdict="deny", approver=f"operator:{person()}", way="command", reason=said)
    with approvals_of(project) as approvals:
        question = waiting_question(approvals, question_id)
        standing = take(approvals, question, answer)
    if as_json:
        print_json({"id": question.id, "state": standing.state, "tool": question.tool, "reason": said})
    else:
        say_done(f"denied {name(question.tool)}, called by {name(question.agent)}")


@command.command("rules", short_help='List the rules that "always" made.')
@project
@common
def list_rules(project: Path | None, *, as_json: bool) -> None:
    """List the rules that hold: id, end, who made it, tool, agent, and the rule itself."""
    with approvals_of(project) as approvals:
        rules = approvals.rules()
    if as_json:
        print_json(
            [
                {
                    **msgspec.to_builtins(rule),
                    "made_at": iso(rule.made_at),
                    "ends_at": iso(rule.ends_at),
                }
                for rule in rules
            ]
        )
        return
    width = screen_width(otherwise=1 << 30)  # not wrapped in a file, from which it may be copied
    for rule in rules:
        say(f"{name(rule.id)}  ends {moment(rule.ends_at)}, {until(rule.ends_at, time.time())}")
        say(f"  made by {name(rule.approver)} for {name(rule.tool)}, called by {name(rule.agent)}")
        for line in rows(rule.text, width):
            say(line.text)
    if not rules:
        say("no rule holds")


_RULE_PREFIX = "rule-"


@command.command("revoke", short_help="End a rule.")
@click.argument("rule_id", metavar="RULE_ID")
@project
@common
def revoke_rule(rule_id: str, project: Path | None, *, as_json: bool) -> None:
    """End the rule RULE_ID, or the one whose id begins so; such calls are asked about again."""
    with approvals_of(project) as approvals:
        ids = [rule.id for rule in approvals.rules()]
        wanted = _RULE_PREFIX + rule_id.removeprefix(_RULE_PREFIX)
        found = [one for one in ids if wanted != _RULE_PREFIX and one.startswith(wanted)]
        if len(found) != 1 or not approvals.revoke(found[0]):
            what = "several rules begin with" if len(found) > 1 else "there is no rule"
            these = listing(ids, len(ids), LISTED_NAMES)
            hint = f"these hold: {these}" if ids else "no rule holds"
            raise NotAnswered(f"{what} {echo_name(rule_id)!r}", hint=hint)
    if as_json:
        print_json({"revoked": found[0]})
    else:
        say_done(f"revoked {found[0]}")
