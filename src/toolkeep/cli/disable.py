"""`toolkeep disable`: disable tools."""

from pathlib import Path

import click

from toolkeep.cli.options import common, project, tools_option
from toolkeep.cli.tool_selection import complete_name, set_enabled


@click.command("disable")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_name)
@tools_option
@project
@common
def command(names: tuple[str, ...], tools: tuple[str, ...], project: Path | None, *, as_json: bool) -> None:
    """Keep tools from answering: NAME for all versions, NAME@VERSION for one.

    It is remembered outside the project, for every start from now on.
    """
    set_enabled(names, project, tools=tools, enabled=False, as_json=as_json)
