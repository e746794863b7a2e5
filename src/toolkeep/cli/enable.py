"""`toolkeep enable`: enable tools again."""

from pathlib import Path

import click

from toolkeep.cli.options import common, project, tools_option
from toolkeep.cli.tool_selection import complete_name, set_enabled


@click.command("enable")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_name)
@tools_option
@project
@common
def command(names: tuple[str, ...], tools: tuple[str, ...], project: Path | None, *, as_json: bool) -> None:
    """Let tools answer again: NAME for all versions, NAME@VERSION for one.

    It is remembered outside the project, for every start from now on.
    """
    set_enabled(names, project, tools=tools, enabled=True, as_json=as_json)
