"""`toolkeep backup`: the state of a keep in one file, and back."""

import click

from toolkeep.cli.main import LazyGroup

COMMANDS = {
    "check": "Read a backup whole, as if to restore it.",
    "make": "Write a backup; the keep goes on meanwhile.",
    "restore": "Put a backup in the place of the state.",
}


@click.group("backup", cls=LazyGroup, package="toolkeep.cli.backup", commands_help=COMMANDS)
def command() -> None:
    """Back up what a keep remembers: definitions, tokens, approvals, ledger, log and keys."""
