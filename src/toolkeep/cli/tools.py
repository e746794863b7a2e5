"""The tools that a command works on: built-in, configured, and those of the files given."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkeep.assembly import open_keep
from toolkeep.cli.options import warn
from toolkeep.errors import ToolkeepError
from toolkeep.keep import Keep
from toolkeep.limits import DEFAULT_LIMITS, LISTED_NAMES
from toolkeep.wording import shorten, visible

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from toolkeep.approval.approve import Approver
    from toolkeep.sources.mcp.questions import Answerer

_HELP_CHARS = 60


def keep_with(
    files: Sequence[Path] = (),
    project: Path | None = None,
    *,
    approver: "Approver | None" = None,
    answerer: "Answerer | None" = None,
    approval_wait_s: float | None = None,
) -> Keep:
    """A keep with the tools of project and files; what cannot be used is named on stderr and left out."""
    keep = open_keep(
        project=project,
        approver=approver,
        answerer=answerer,
        approval_wait_s=approval_wait_s,
        follow_store=False,
    )
    for skipped in keep.start_up.skipped[:LISTED_NAMES]:
        _say_skipped(skipped.tool or f"provider {skipped.provider}", skipped.error)
    if (more := len(keep.start_up.skipped) - LISTED_NAMES) > 0:
        warn(f"and {more} more were skipped")
    for name, place in keep.start_up.unmatched:
        warn(f"{visible(name)}: no tool is called that ({visible(place)})")
    for held_back in keep.start_up.held_back:
        text = f"{visible(held_back)} does not count yet: it would run, grant or loosen something."
        warn(text, "  See what, and accept it: toolkeep accept")
    for path in files:
        _add_file(keep, path)
    return keep


def _add_file(keep: Keep, path: Path) -> None:
    from toolkeep.sources.files import load_definitions

    for loaded in load_definitions(path):
        if loaded.definition is None:
            _say_skipped(loaded.name, loaded.error)
            continue
        try:
            keep.register(loaded.definition)
        except ToolkeepError as error:
            _say_skipped(loaded.name, error)


def _say_skipped(name: str, error: ToolkeepError | None) -> None:
    why = str(error).split("\n")
    warn(f"skipped '{name}': {why[0]}", *why[1:])


def read_arguments(arguments: str | None) -> bytes:
    """The arguments of a call: those given, or standard input."""
    if arguments is not None and arguments != "-":
        return arguments.encode("utf-8", "surrogateescape")
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError("Give the arguments as JSON, or on standard input.")
    return sys.stdin.buffer.read(DEFAULT_LIMITS.argument_bytes + 1)


def complete_name(ctx: click.Context, _: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """The names of tools for a shell; a shell that completes is told nothing else."""
    from click.shell_completion import CompletionItem

    try:
        keep = open_keep(project=ctx.params.get("project"), follow_store=False)
    except (ToolkeepError, OSError):
        return []
    return [
        CompletionItem(
            tool.name, help=shorten(visible(tool.definition.description.split("\n")[0]), _HELP_CHARS)
        )
        for tool in keep.tools()
        if tool.name.startswith(incomplete.casefold())
    ]
