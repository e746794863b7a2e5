"""`toolkeep store`: where custom definitions are kept, and in which layout."""

import click

from toolkeep.cli.main import LazyGroup

COMMANDS = {
    "migrate": "Move the tables to another layout.",
    "status": "Say where definitions are kept, and how many.",
}


@click.group("store", cls=LazyGroup, package="toolkeep.cli.store", commands_help=COMMANDS)
def command() -> None:
    """Look after the database in which custom definitions and tokens are kept."""
