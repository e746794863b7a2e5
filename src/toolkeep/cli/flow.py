"""`toolkeep flow`: roles and labels of imported tools, which a person declares (FLO-1)."""

import asyncio
from pathlib import Path
from typing import Any

import click
import msgspec

from toolkeep.cli.call_arguments import read_words
from toolkeep.cli.main import CommandGroup
from toolkeep.cli.operator_change import agree, terminal_confirmation
from toolkeep.cli.options import common, print_json, project, say, say_done
from toolkeep.cli.tool_selection import complete_name, keep_with
from toolkeep.server.api.flow_routes import FlowBody, change_flow, preview, show_flow


@click.group("flow", cls=CommandGroup)
def command() -> None:
    """Show and declare the roles of arguments and the labels of results of imported tools."""


@command.command("show", short_help="Show what is declared about a tool.")
@click.argument("name", shell_complete=complete_name)
@project
@common
def show_command(name: str, project: Path | None, *, as_json: bool) -> None:
    """Show what is declared about the imported tool NAME, and what counts where nothing is declared."""
    with keep_with(project=project) as keep:
        view = show_flow(keep, terminal_confirmation("").caller, name)
    if as_json:
        print_json(msgspec.to_builtins(view))
        return
    by = "a person, in place of the configuration" if view.is_stored else "the configuration or the upstream"
    say(f"Declared by {by}:", *(f"  {one}" for one in view.lines or ["nothing"]))
    undeclared = [f"  {place}: {role}" for place, role in view.by_default.items()]
    undeclared += [f"  result {place}: text, written by anybody" for place in view.unlabelled]
    if undeclared:
        say("Not declared, and counts as:", *undeclared)


@command.command("declare", short_help="Declare roles and labels of a tool.")
@click.argument("name", shell_complete=complete_name)
@click.argument("words", nargs=-1, required=True, metavar="POINTER=ROLE...")
@click.option("--hash", "given_hash", metavar="HASH", help="Do not ask, if this is the hash of the preview.")
@project
@common
def declare_command(
    name: str, words: tuple[str, ...], given_hash: str | None, project: Path | None, *, as_json: bool
) -> None:
    """Declare roles of arguments, and labels of the result, of the imported tool NAME.

    /to=destination declares the role of an argument, 'result:={"/id": {"system": "id"}}' labels; or one JSON
    object, as `upstreams.NAME.flow` of a configuration would say it. It takes the place of all that is
    declared about the tool, at once and in every running server, until the upstream changes the tool.

    Shows what you promise for the upstream, and asks in a terminal; elsewhere pass --hash. The log gets your
    name and the difference.
    """
    try:
        declared = msgspec.json.decode(read_words(words, {}), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"It is no JSON object: {error}.") from error
    _change(name, declared, given_hash, project, as_json=as_json)


@command.command("drop", short_help="Take a declaration back.")
@click.argument("name", shell_complete=complete_name)
@click.option("--hash", "given_hash", metavar="HASH", help="Do not ask, if this is the hash of the preview.")
@project
@common
def drop_command(name: str, given_hash: str | None, project: Path | None, *, as_json: bool) -> None:
    """Take back what a person declared about the imported tool NAME.

    What the configuration says counts again. Shows what changes, and asks in a terminal; elsewhere pass
    --hash.
    """
    _change(name, None, given_hash, project, as_json=as_json)


def _change(
    name: str, declared: dict[str, Any] | None, given_hash: str | None, project: Path | None, *, as_json: bool
) -> None:
    with keep_with(project=project) as keep:
        shown = preview(keep, terminal_confirmation("").caller, name, declared)
        say(*shown.difference, err=True)
        agree(f"Put it in force for {shown.tool}?", shown.seen, given_hash)
        body = FlowBody(declared=declared, seen=shown.seen)
        done = asyncio.run(change_flow(keep, terminal_confirmation(shown.typed_name), name, body))
    if as_json:
        print_json(msgspec.to_builtins(done))
    else:
        say_done(f"{done.tool}: {'declared' if declared is not None else 'taken back'}")
