"""The tools that a command works on: built-in, configured, and those of the files given."""

from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from toolkeep.assembly import open_keep
from toolkeep.cli.options import say
from toolkeep.errors import ToolkeepError
from toolkeep.keep import Keep


def keep_with(files: Sequence[Path] = (), project: Path | None = None) -> Keep:
    """A keep with the tools of project and files; what cannot be used is named on stderr and left out."""
    keep = open_keep(project=project)
    for skipped in keep.start_up.skipped:
        _say_skipped(skipped.tool or f"provider {skipped.provider}", skipped.error)
    for held_back in keep.start_up.held_back:
        text = f" {held_back} does not count yet: it would run, grant or loosen something."
        say(f"{text}\n  See what, and accept it: toolkeep accept", label="!", color="yellow", err=True)
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
    say(f" skipped '{name}': {error}", label="!", color="yellow", err=True)


def complete_name(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of tools for a shell; a shell that completes is told nothing else."""
    try:
        keep = open_keep(project=ctx.params.get("project"))
    except (ToolkeepError, OSError):
        return []
    return [
        CompletionItem(tool.name, help=tool.definition.description.split("\n")[0])
        for tool in keep.tools()
        if tool.name.startswith(incomplete.casefold())
    ]
