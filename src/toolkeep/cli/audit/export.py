"""`toolkeep audit export`: the log as lines of JSON, with what is needed to check it elsewhere."""

import json
from pathlib import Path

import click

from toolkeep.cli.audit.folder import log_of
from toolkeep.cli.options import common, project


@click.command("export")
@click.option("--from", "start", type=click.IntRange(0), default=0, help="The first record.")
@project
@common
def command(start: int, project: Path | None, *, as_json: bool) -> None:  # noqa: ARG001 -- always JSON
    """Print one line for the key and checkpoint, then one for each record."""
    with log_of(project) as log:
        head = {"key": str(log.public_key()), "checkpoint": log.checkpoint()}
        click.echo(json.dumps(head, ensure_ascii=False))
        for entry in log.read(start):
            click.echo(entry.line.decode())
