"""`toolkeep audit rotate-key`: a new signing key, vouched for by the old one."""

from pathlib import Path

import click

from toolkeep.cli.audit.folder import log_of
from toolkeep.cli.options import common, print_json, project, say_done


@click.command("rotate-key")
@project
@common
def command(project: Path | None, *, as_json: bool) -> None:
    """Go on with a new signing key; the log says so, signed with the old one."""
    with log_of(project) as log:
        key = str(log.rotate_key())
    if as_json:
        print_json({"key": key})
    else:
        say_done(f"the log goes on with {key}")
