"""`toolkeep danger`: set the danger of tools in place of that of their definitions."""

import asyncio
from pathlib import Path
from typing import get_args

import click
import msgspec

from toolkeep.cli.operator_change import agree, terminal_confirmation
from toolkeep.cli.options import common, print_json, project, say, say_done, say_failed
from toolkeep.cli.tool_selection import complete_name, keep_with
from toolkeep.errors import NotAccepted
from toolkeep.server.api.bulk_routes import BulkBody, Level, change_tools, preview


@click.command("danger")
@click.argument("level", type=click.Choice(get_args(Level)))
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_name)
@click.option("--hash", "given_hash", metavar="HASH", help="Do not ask, if this is the hash of the preview.")
@project
@common
def command(
    level: Level, names: tuple[str, ...], given_hash: str | None, project: Path | None, *, as_json: bool
) -> None:
    """Set the danger of tools to LEVEL, in place of the one in their definition; `own` returns to that.

    It counts in all processes and for policies too, and ends approvals that were remembered for the tools.
    Shows what would change, and asks in a terminal; elsewhere pass --hash. The log gets your name.
    """
    body = BulkBody(names=list(names), action="danger", danger=level)
    with keep_with(project=project) as keep:
        shown = preview(keep, terminal_confirmation("").caller, body)
        for line in shown.lines:
            after = f"stays: {line.problem}" if line.problem else f"{line.before} becomes {line.after}"
            say(f"{line.tool}: {after}", err=True)
        if not shown.typed_name:
            raise NotAccepted("nothing would change", hint="`toolkeep list` shows the danger of each tool")
        agree(f"Set the danger of {shown.typed_name}?", shown.seen, given_hash)
        said = terminal_confirmation(shown.typed_name)
        done = asyncio.run(change_tools(keep, said, msgspec.structs.replace(body, seen=shown.seen)))
    if as_json:
        print_json(msgspec.to_builtins(done.lines))
        return
    for line in done.lines:
        if line.problem:
            say_failed(f"{line.tool} stays {line.before}: {line.problem}")
        else:
            say_done(f"{line.tool} is {line.after}")
