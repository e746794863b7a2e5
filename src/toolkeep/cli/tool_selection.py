"""The tools that a command works on: built-in, configured, and from files."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from toolkeep.cli.options import print_json, say_done, warn
from toolkeep.definitions.version_order import split_version
from toolkeep.definitions.vocabulary import ToolState
from toolkeep.errors import ToolkeepError
from toolkeep.keep.keep import KNOWN_AGENTS, Keep
from toolkeep.keep.open import open_keep, open_state, read_configuration
from toolkeep.limits import LISTED_NAMES
from toolkeep.registry.register import Skipped
from toolkeep.text.display import shorten, visible

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from toolkeep.approval.approver import Approver
    from toolkeep.cli.tools_files import ServedFiles
    from toolkeep.config.tools_file import ToolsFile
    from toolkeep.mcp_client.elicitation import Answerer

_HELP_CHARS = 60
"""Characters of a description beside a completed name: shells show each candidate on one line."""


def keep_with(
    files: Sequence[Path] = (),
    project: Path | None = None,
    *,
    tools: "Sequence[ToolsFile]" = (),
    approver: "Approver | None" = None,
    answerer: "Answerer | None" = None,
    approval_wait_s: float | None = None,
    default_wait_s: float = 0.0,
) -> Keep:
    """Open a keep with the tools of the project and of files; unusable ones are skipped, with a warning.

    `tools` are Python files or modules of tools: one that cannot be read is an error.
    """
    keep = open_keep(
        project=project,
        approver=approver,
        answerer=answerer,
        approval_wait_s=approval_wait_s,
        default_wait_s=default_wait_s,
        follow_store=False,
    )
    for skipped in keep.start_up.skipped[:LISTED_NAMES]:
        _say_skipped(skipped.tool or f"provider {skipped.provider}", skipped.error)
    if (more := len(keep.start_up.skipped) - LISTED_NAMES) > 0:
        warn(f"and {more} more tools were skipped")
    for name, place in keep.start_up.unmatched:
        warn(f"{visible(name)}: there is no such tool ({visible(place)})")
    for why in keep.start_up.why_held_back:
        warn(f"{why}.", "  Nothing of the configuration is in effect until you accept it: toolkeep accept")
    try:
        for path in files:
            _add_file(keep, path)
        if tools:
            from toolkeep.cli.tools_files import add_tools

            for skipped in add_tools(keep, tools, project):
                _say_skipped(skipped.tool, skipped.error)
    except BaseException:
        keep.close()
        raise
    return keep


def named_tools(names: Sequence[str], project: Path | None) -> "Sequence[ToolsFile]":
    """The Python files or modules of tools that a command names, each accepted."""
    if not names:
        return ()
    from toolkeep.cli.tools_files import find_accepted

    return find_accepted(names, project)


def served_files(names: Sequence[str], root: Path, *, holds_back: bool) -> "ServedFiles | None":
    """The same for a server, which follows them; None if it was named none."""
    if not names:
        return None
    from toolkeep.cli.tools_files import ServedFiles

    return ServedFiles(names, root, holds_back=holds_back)


def _add_file(keep: Keep, path: Path) -> None:
    from toolkeep.sources.definition_files import load_definitions

    for loaded in load_definitions(path):
        error = loaded.error
        if loaded.definition is not None:
            try:
                keep.register(loaded.definition)
            except ToolkeepError as refused:
                error = refused
        if error is not None:
            _say_skipped(loaded.name, error)
            skipped = (*keep.start_up.skipped, Skipped(str(path), loaded.name, error))
            keep.start_up = replace(keep.start_up, skipped=skipped)


def _say_skipped(name: str, error: ToolkeepError) -> None:
    why = str(error).split("\n")
    warn(f"skipped '{name}': {why[0]}", *why[1:])


def complete_name(ctx: click.Context, _: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Tool names for shell completion; errors are not shown."""
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


def set_enabled(
    names: Sequence[str], project: Path | None, *, tools: Sequence[str], enabled: bool, as_json: bool
) -> None:
    """Enable or disable tools, of files too, for all later starts; all of them, or none."""
    keep = keep_with(project=project, tools=named_tools(tools, project))
    change = keep.enable if enabled else keep.disable
    for name in names:
        change(name)  # a dry run: raises before anything is stored
    for name in names:
        change(name, remember=True)
    found = [keep.get(name) for name in names]
    if as_json:
        print_json(
            [{"tool": tool.name, "version": tool.version, "state": tool.state.value} for tool in found]
        )
        return
    for name, tool in zip(names, found, strict=True):
        held = [tool] if split_version(name)[1] else keep.versions(tool.name)
        for one in held:
            why = f": {one.why}" if one.state is ToolState.QUARANTINED else ""
            say_done(f"{one.name} {one.version} is {one.state.value}{why}")


def warn_if_undeclared(agent: str, root: Path) -> None:
    """Warn on stderr if no accepted configuration declares the agent: its calls would be refused."""
    if agent not in KNOWN_AGENTS and agent not in read_configuration(root, open_state(root)).agents:
        text = f"no agent {agent!r} is declared: its calls are refused"
        warn(f"{text} until an accepted configuration declares it under `agents`")
