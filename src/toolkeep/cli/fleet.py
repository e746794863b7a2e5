"""`toolkeep fleet`: the workers on other machines, and the key that they know this server by."""

from pathlib import Path

import click

from toolkeep.cli.options import common, print_json, project, say
from toolkeep.errors import Code, ToolkeepError


@click.group("fleet")
def command() -> None:
    """See the workers on other machines."""


@command.command("key")
@project
@common
def key_command(project: Path | None, *, as_json: bool) -> None:
    """Print the key of this server, which workers must trust."""
    from toolkeep.keep.open import open_state, project_folder, server_key

    state = open_state(project_folder(project))
    if state is None:
        raise ToolkeepError(Code.STATE_UNUSABLE, "a server needs a home directory", hint="set HOME")
    key = server_key(state).public.text
    if as_json:
        print_json({"key": key})
    else:
        say(key)
