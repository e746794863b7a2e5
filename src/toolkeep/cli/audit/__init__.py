"""`toolkeep audit`: look into the log, check it, prove from it."""

import click

from toolkeep.cli.main import LazyGroup

COMMANDS = {
    "checkpoint": "Print a signed checkpoint, to be kept elsewhere.",
    "erase": "Erase kept arguments and results; the log stays whole.",
    "export": "Print the records with what is needed to check them.",
    "key": "Print the public key of the log.",
    "list": "List the newest records.",
    "receipt": "Print the receipt of a call.",
    "replay": "Run a recorded call again and compare.",
    "rotate-key": "Go on with a new signing key.",
    "show": "Show a record, or all records of a call.",
    "verify": "Check the log, or a receipt.",
    "witness": "Answer requests for cosignatures.",
}


@click.group("audit", cls=LazyGroup, package="toolkeep.cli.audit", commands_help=COMMANDS)
def command() -> None:
    """Look into the log of calls, check it, prove from it."""
