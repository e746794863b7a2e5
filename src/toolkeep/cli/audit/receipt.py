"""`toolkeep audit receipt`: the proof of one call, to be given away."""

from pathlib import Path

import click

from toolkeep.audit.receipt import Receipt
from toolkeep.cli.audit.folder import entries_of_call, log_of
from toolkeep.cli.audit.reading import read_checkpoint
from toolkeep.cli.options import common, print_json, project


@click.command("receipt")
@click.argument("call")
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Prove it under this checkpoint of the log, with the signatures of witnesses that it has.",
)
@project
@common
def command(call: str, checkpoint: Path | None, project: Path | None, *, as_json: bool) -> None:  # noqa: ARG001 -- a receipt is JSON
    """Print the receipt of the call with this id: its outcome, and the proof that the log holds it."""
    given = read_checkpoint(checkpoint) if checkpoint else None
    with log_of(project) as log:
        entry = entries_of_call(log, call)[-1]
        receipt = Receipt.of(entry, log.prove(entry.index, given))
    print_json(receipt.to_dict())
