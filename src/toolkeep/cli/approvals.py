"""`toolkeep approvals`: calls that wait for a person, answers, and remembered approvals."""

import contextlib
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from toolkeep.approval.argument_summary import summary
from toolkeep.approval.question import EXPIRED, Answer, AnswerRefused, Question, Standing, check_answer
from toolkeep.approval.question_text import duration, moment, name, render_questions, rows, until
from toolkeep.cli.main import CommandGroup
from toolkeep.cli.options import common, print_json, project, say, say_done
from toolkeep.cli.tables import Column, say_table, screen_width, short_time
from toolkeep.errors import Code, StateUnusable, ToolkeepError
from toolkeep.host.clock import iso
from toolkeep.limits import LISTED_NAMES
from toolkeep.text.display import echo_name, listing, shorten, visible

if TYPE_CHECKING:
    from toolkeep.approval.approval_store import Approvals
    from toolkeep.server.api.approval_routes import ContextView


class ListByDefault(CommandGroup):
    """Without a subcommand: `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As written, or with `list` where only its options are."""
        is_listing = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, ["list", *args] if is_listing else args)


@click.group("approvals", cls=ListByDefault)
def command() -> None:
    """List calls that wait for approval, the last answers, and the rules that approve calls without asking.

    Without a command, the calls that wait are listed.
    """


_REASON_CHARS = 500  # of what an approver wrote, in one line of a terminal


class NotAnswered(ToolkeepError):
    """An answer that is missing or not valid."""

    def __init__(self, reason: str, *, hint: str) -> None:
        super().__init__(Code.ANSWER_REFUSED, reason, hint=hint)


@contextlib.contextmanager
def approvals_of(project: Path | None) -> "Iterator[Approvals]":
    """Open the approval store of a project."""
    from toolkeep.keep.open import open_approvals, project_folder

    with open_approvals(project_folder(project)) as approvals:
        if approvals is None:
            hint = "set TOOLKEEP_HOME to the state folder of the keep in which the call waits"
            raise NotAnswered("there is no state folder, so no call can wait", hint=hint)
        yield approvals


def waiting_question(approvals: "Approvals", given: str, project: Path | None = None) -> Question:
    """Find a pending request of the project by id or prefix; raises if there is none."""
    waiting = [standing.question for standing in approvals.waiting()]
    found = [question for question in waiting if given and question.id.startswith(given)]
    if len(found) == 1:
        return found[0]
    if found:
        raise NotAnswered(f"{echo_name(given)!r} matches several waiting calls", hint=_these(found))
    if (standing := approvals.standing(given)) is not None:
        raise NotAnswered(f"{standing.question.id} {_why_not(standing)}", hint=_these(waiting))
    what, hint = _elsewhere(project, waiting, given)
    raise NotAnswered(f"no waiting call{what} has the id {echo_name(given)!r}", hint=hint)


def waiting_questions(
    approvals: "Approvals", given: str | None, project: Path | None = None
) -> list[Question]:
    """Find a pending request, or those of one response by its id; without an id, what waits alone."""
    if given is None:
        return _only_questions(approvals, project)
    waiting = [standing.question for standing in approvals.waiting()]
    responses = {question.response for question in waiting if question.response}
    found = [one for one in responses if given and one.startswith(given)]
    # An id of a call counts first: it names less.
    if len(found) == 1 and not any(question.id.startswith(given) for question in waiting):
        return [question for question in waiting if question.response == found[0]]
    return [waiting_question(approvals, given, project)]


def _only_questions(approvals: "Approvals", project: Path | None) -> list[Question]:
    """The pending requests, if there is exactly one, or if all are of one response."""
    waiting = [standing.question for standing in approvals.waiting()]
    responses = {question.response for question in waiting}
    if len(waiting) == 1 or (len(responses) == 1 and "" not in responses):
        return waiting
    if waiting:
        raise NotAnswered("several calls wait; name one", hint=_these(waiting))
    what, hint = _elsewhere(project, waiting, "")
    raise NotAnswered(f"no call{what} waits", hint=hint)


def _elsewhere(project: Path | None, waiting: Sequence[Question], given: str) -> tuple[str, str]:
    """Which project was searched, and the projects of this user in which such a call waits."""
    from toolkeep.keep.open import open_state, project_folder
    from toolkeep.storage.sqlite.approvals_db import SqliteApprovals
    from toolkeep.storage.state_folder import other_projects

    root = project_folder(project)
    found = []
    state = open_state(root)
    for folder, other in other_projects(state.folder) if state else ():
        # What cannot be used there is said by a command for that project.
        with contextlib.suppress(StateUnusable), contextlib.closing(SqliteApprovals(folder)) as theirs:
            if any(one.question.id.startswith(given) for one in theirs.waiting()):
                found.append(shlex.quote(visible(str(other))))
    if found:
        named = listing((f"--project {other}" for other in found), len(found), LISTED_NAMES, " or ")
        hint = f"such a call waits in another project; add {named}"
    else:
        hint = f"{_these(waiting)}; for another project add --project DIR"
    return f" of {visible(str(root))}", hint


def take(approvals: "Approvals", question: Question, answer: Answer) -> Standing:
    """Store an answer; raises if it is not valid."""
    try:
        return approvals.answer(question.id, answer)
    except AnswerRefused as refused:
        raise NotAnswered(refused.reason, hint=_otherwise(question, answer)) from refused


def check(question: Question, answer: Answer) -> None:
    """Raise if an answer would not be valid, before the person is asked."""
    try:
        check_answer(question, answer, time.time())
    except AnswerRefused as refused:
        raise NotAnswered(refused.reason, hint=_otherwise(question, answer)) from refused


def question_data(question: Question) -> dict[str, Any]:
    """An approval request as JSON data."""
    data: dict[str, Any] = msgspec.to_builtins(question)
    return {
        **data,
        "arguments": question.argument_data,
        "asked_at": iso(question.asked_at),
        "expires_at": iso(question.expires_at),
    }


def _otherwise(question: Question, answer: Answer) -> str:
    if answer.reach != "once":
        return f"approve it once: toolkeep approve {name(question.id)}"
    return "let another person answer, or make the call again"


def _why_not(standing: Standing) -> str:
    if standing.state == "withdrawn":
        return "was cancelled by its caller"
    if standing.state in ("waiting", "expired"):
        ended = moment(standing.question.expires_at)
        return f"cannot be answered: {EXPIRED} (at {ended}; it is now {moment(time.time())})"
    who = name(standing.answer.approver) if standing.answer else "another person"
    if standing.state == "denied":
        said = standing.answer.reason.strip() if standing.answer else ""
        return f"was denied by {who}" + (f": {shorten(visible(said), _REASON_CHARS)}" if said else "")
    return f"was approved by {who}" + (", and it ran" if standing.state == "used" else "")


def _these(questions: Sequence[Question]) -> str:
    shown = (f"{question.id} ({echo_name(question.tool)})" for question in questions)
    if not questions:
        return "no call waits for approval; list them with: toolkeep approvals"
    return f"waiting calls: {listing(shown, len(questions), LISTED_NAMES)}"


_LISTED_FIELDS = (
    "id", "response", "asked_at", "expires_at", "agent", "session", "tool", "danger", "why", "arguments",
    "flow",
)  # fmt: skip
_ID_CHARS = 8
"""Characters of an id in a list: enough to name the call in a command."""
_SUMMARY_CHARS = 160
"""Characters of the arguments in a list; two or three of them fit."""
_COLUMNS = (
    Column("ID"),
    Column("EXPIRES IN"),
    Column("DANGER"),
    Column("TOOL", narrowest=10),
    Column("AGENT", narrowest=8),
    Column("ARGUMENTS", narrowest=12),
)
"""Our own columns first, so that names cannot imitate them."""


@command.command("list", short_help="List the calls that wait for approval.")
@project
@common
def list_waiting(project: Path | None, *, as_json: bool) -> None:
    """List the calls that wait for approval, oldest first. The start of an ID is enough for a command."""
    with approvals_of(project) as approvals:
        questions = [standing.question for standing in approvals.waiting()]
    if as_json:
        whole = map(question_data, questions)
        print_json([{field: data[field] for field in _LISTED_FIELDS} for data in whole])
        return
    if not questions:
        say("No call waits for approval.")
        return
    now = time.time()
    shared = next((one for one, count in Counter(map(_response, questions)).items() if one and count > 1), "")
    columns = (_COLUMNS[0], Column("RESPONSE"), *_COLUMNS[1:]) if shared else _COLUMNS
    say_table(columns, [_row(question, now, has_response=bool(shared)) for question in questions])
    say("", f"Answer one: toolkeep approve {name(questions[0].id[:_ID_CHARS])}, or toolkeep deny")
    if shared:
        say(f"Answer the calls of one response at once: toolkeep approve {name(shared)}, or toolkeep deny")


def _response(question: Question) -> str:
    return question.response[:_ID_CHARS]


def _row(question: Question, now: float, *, has_response: bool) -> tuple[str, ...]:
    return (
        name(question.id[:_ID_CHARS]),
        *((name(_response(question)) if question.response else "",) if has_response else ()),
        duration(question.expires_at - now),
        question.danger,
        name(question.tool),
        name(question.agent),
        summary(question.argument_data, _SUMMARY_CHARS),
    )


_SHOWN_WIDTH = 120
"""Columns of a question on a wider screen, or in a file."""


@command.command("show", short_help="Show a waiting call in full.")
@click.argument("question_id", metavar="ID")
@click.option(
    "--context",
    "has_context",
    is_flag=True,
    help="Add the tool's description, what the agent holds, and how earlier calls went.",
)
@project
@common
def show_question(question_id: str, project: Path | None, *, has_context: bool, as_json: bool) -> None:
    """Show the waiting call with this ID, or whose id starts with it; or all calls of the response ID."""
    with approvals_of(project) as approvals:
        questions = waiting_questions(approvals, question_id, project)
    contexts = _contexts(questions, project) if has_context else []
    if as_json:
        data = [question_data(question) for question in questions]
        for one, context in zip(data, contexts, strict=False):
            one["context"] = msgspec.to_builtins(context)
        print_json(data if len(data) > 1 else data[0])
        return
    for line in render_questions(questions, now=time.time(), width=min(screen_width(), _SHOWN_WIDTH)):
        click.echo(line.text)
    for question, context in zip(questions, contexts, strict=False):
        say("", *_context_lines(question, context))


def _contexts(questions: Sequence[Question], project: Path | None) -> "list[ContextView]":
    from toolkeep.cli.tool_selection import keep_with
    from toolkeep.server.api.approval_history import ApprovalHistory
    from toolkeep.server.api.approval_routes import context_of

    with keep_with(project=project) as keep:
        history = ApprovalHistory()
        return [context_of(keep, history, question) for question in questions]


def _context_lines(question: Question, context: "ContextView") -> Iterator[str]:
    if context.description:
        yield f"The tool {name(question.tool)} says of itself:"
        yield from (f"  | {line}" for line in context.description.split("\n"))
    else:
        yield f"The tool {name(question.tool)} changed since the call was made."
    if context.grant:
        yield f"{name(question.agent)} holds: {', '.join(context.grant)}"
    past = context.past
    denied = f" ({past.denied:,} by a person)" if past.denied else ""
    gone = f"{past.ok:,} succeeded, {past.failed:,} failed, {past.refused:,} refused{denied}"
    yield f"Its earlier calls of {name(question.tool)}: {gone if past.last_at else 'none'}"
    yield "Its last calls in the session:" if context.session else "No earlier call in the session."
    for one in context.session:
        after = ", after text from outside" if one.opened else ""
        secret = ", after secrets" if one.secret else ""
        why = f" {one.codes[0]}" if one.codes else ""
        yield f"  {name(one.call_id[:_ID_CHARS])}  {name(one.tool)}  {one.outcome}{why}{after}{secret}"


_ANSWER_COLUMNS = (
    Column("TIME"),
    Column("ANSWER"),
    Column("CALL"),
    Column("TOOL", narrowest=10),
    Column("AGENT", narrowest=8),
    Column("BY", narrowest=8),
    Column("OUTCOME"),
)


@command.command("answers", short_help="List the last answers.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Maximum number.")
@project
@common
def list_answers(limit: int, project: Path | None, *, as_json: bool) -> None:
    """List the last answers, newest first: who gave each, and what came of its call.

    Times are local; with --json they are UTC.
    """
    from toolkeep.cli.tool_selection import keep_with
    from toolkeep.server.api.approval_history import ApprovalHistory

    with keep_with(project=project) as keep:
        answers = ApprovalHistory().answers(keep, limit)
    if as_json:
        print_json([msgspec.to_builtins(one) for one in answers])
        return
    if not answers:
        say("No call was answered yet.")
        return
    rows = [
        (
            short_time(datetime.fromisoformat(one.at).timestamp()),
            one.verdict,
            name(one.call_id[:_ID_CHARS]),
            name(one.tool),
            name(one.agent),
            name(one.approver) if one.approver else "nobody in time",
            one.status,
        )
        for one in answers
    ]
    say_table(_ANSWER_COLUMNS, rows)


@command.command("rules", short_help="List the approval rules.")
@project
@common
def list_rules(project: Path | None, *, as_json: bool) -> None:
    """List the rules that approve calls without asking: when each ends, who made it, and what it covers."""
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
    width = screen_width()
    for rule in rules:
        say(f"{name(rule.id)}  expires {moment(rule.ends_at)}, {until(rule.ends_at, time.time())}")
        say(f"  made by {name(rule.approver)} for {name(rule.tool)}, called by {name(rule.agent)}")
        for line in rows(rule.text, width):
            say(line.text)
    if not rules:
        say("There are no approval rules.")


_RULE_PREFIX = "rule-"


@command.command("revoke", short_help="Revoke an approval rule.")
@click.argument("rule_id", metavar="RULE_ID")
@project
@common
def revoke_rule(rule_id: str, project: Path | None, *, as_json: bool) -> None:
    """Revoke the rule RULE_ID, or the one whose id starts with it. Its calls need approval again."""
    with approvals_of(project) as approvals:
        ids = [rule.id for rule in approvals.rules()]
        wanted = _RULE_PREFIX + rule_id.removeprefix(_RULE_PREFIX)
        found = [one for one in ids if wanted != _RULE_PREFIX and one.startswith(wanted)]
        if len(found) != 1 or not approvals.revoke(found[0]):
            what = "matches several rules" if len(found) > 1 else "matches no rule"
            these = listing(ids, len(ids), LISTED_NAMES)
            hint = f"rules: {these}" if ids else "there are no approval rules"
            raise NotAnswered(f"{echo_name(rule_id)!r} {what}", hint=hint)
    if as_json:
        print_json({"revoked": found[0]})
    else:
        say_done(f"revoked {found[0]}")
