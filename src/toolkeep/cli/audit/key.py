"""`toolkeep audit key`: the public key of the log."""

from pathlib import Path

import click

from toolkeep.cli.audit.folder import log_of
from toolkeep.cli.options import common, print_json, project, say


@click.command("key")
@project
@common
def command(project: Path | None, *, as_json: bool) -> None:
    """Print the key that receipts and checkpoints are checked with."""
    with log_of(project) as log:
        key = str(log.public_key())
    if as_json:
        print_json({"key": key})
    else:
        say(key)
