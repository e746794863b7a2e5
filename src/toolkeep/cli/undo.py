"""`toolkeep undo`: take back what a call, or a whole session, wrote to files (TLS-4)."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolkeep.approval.question_text import name
from toolkeep.cli.call import terminal_approver, until_told
from toolkeep.cli.next_step import operator_text
from toolkeep.cli.options import common, print_json, project, say, say_done, say_failed
from toolkeep.cli.tables import short_time
from toolkeep.cli.tool_selection import keep_with
from toolkeep.errors import NotRecorded
from toolkeep.keep.undo import plan_undo
from toolkeep.text.display import visible

if TYPE_CHECKING:
    from toolkeep.stores.replaced_files import Replaced


@click.command("undo")
@click.argument("call", required=False)
@click.option("--session", metavar="SESSION", help="Take back every call of a session or conversation.")
@click.option("--agent", default="operator", show_default=True, help="The agent that takes it back.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@project
@common
def command(
    call: str | None, session: str | None, agent: str, project: Path | None, *, dry_run: bool, as_json: bool
) -> None:
    """Take back what a CALL of write_file, edit_code or restore_file did to its file.

    The file gets its earlier content, or is removed if the call made it; a file that changed since stays as
    it is. With --session, the calls of a session are taken back, the newest first, up to the first that
    cannot be. Each is a call of restore_file: decided, approved on the terminal and recorded; and it can be
    undone, too.
    """
    if (call is None) == (session is None):
        raise click.UsageError("Give a CALL or --session SESSION, not both.")
    with keep_with(project=project, approver=terminal_approver(project)) as keep:
        if not keep.has_agent(agent):
            raise click.BadParameter(f"{agent!r} is not declared under `agents`", param_hint="--agent")
        found = keep.replaced(call=_whole(call, project)) if call else keep.replaced(session=session or "")
        _check(found, call or session or "")
        if dry_run:
            _print(found, as_json=as_json)
            return
        done, is_done = list[dict[str, Any]](), True
        for one in found:
            if one.undone_by and session is not None:
                continue
            _say_what(one, err=True)
            result = asyncio.run(until_told(keep.undo(one.call, agent=agent), keep))
            is_done = result.ok
            done.append({"call": one.call, "path": one.path, "result": result.to_dict()})
            if not as_json:
                (say_done if is_done else say_failed)(
                    str(result.value) if result.error is None else operator_text(result.error)
                )
            if not is_done:
                break
        if as_json:
            print_json(done)
    if not is_done:
        sys.exit(1)


def _whole(call: str, project: Path | None) -> str:
    """The id of a call, of which a prefix may be given."""
    from toolkeep.cli.audit import entries_of_call, log_of

    with log_of(project) as log:
        return str(entries_of_call(log, call)[0].record["call"])


def _check(found: "Sequence[Replaced]", given: str) -> None:
    if not found:
        hint = "only writes of built-in tools on this server are kept, for `undo.days` of the configuration"
        raise NotRecorded(f"nothing that {given[:64]!r} wrote to files is kept", hint)


def _say_what(one: "Replaced", *, err: bool = False) -> None:
    who = f"{name(one.agent)}, {short_time(one.at)}"
    made = "" if one.was_there else ", which it made"
    say(f"{one.call[:12]}  {one.tool} of {visible(one.path)}{made}, by {who}", err=err)


def _print(found: "Sequence[Replaced]", *, as_json: bool) -> None:
    steps = plan_undo(found)
    if as_json:
        print_json(
            [
                {
                    "call": step.replaced.call,
                    "tool": step.replaced.tool,
                    "path": step.replaced.path,
                    "obstacle": step.obstacle,
                    "difference": step.difference,
                }
                for step in steps
            ]
        )
        return
    for step in steps:
        _say_what(step.replaced)
        why, changes = step.obstacle, step.difference
        say(*(f"  cannot be taken back: {why}" if why else changes or "  nothing would change").split("\n"))
