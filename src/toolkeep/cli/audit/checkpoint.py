"""`toolkeep audit checkpoint`: what somebody else should keep, so that the log cannot be cut unnoticed."""

from pathlib import Path

import click

from toolkeep.cli.audit.folder import log_of
from toolkeep.cli.options import common, print_json, project


@click.command("checkpoint")
@project
@common
def command(project: Path | None, *, as_json: bool) -> None:
    """Print a signed checkpoint over everything recorded so far."""
    with log_of(project) as log:
        note = log.checkpoint()
    if as_json:
        print_json({"checkpoint": note})
    else:
        click.echo(note, nl=False)
