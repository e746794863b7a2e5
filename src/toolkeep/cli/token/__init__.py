"""`toolkeep token`: who may use the keep over the network."""

import click

from toolkeep.cli.main import LazyGroup

COMMANDS = {
    "link": "Make a link that signs a person in to the page.",
    "list": "List the tokens.",
    "make": "Make a token; it is shown once.",
    "revoke": "Let a token no longer count.",
    "rotate": "Put another token in the place of one.",
}


@click.group("token", cls=LazyGroup, package="toolkeep.cli.token", commands_help=COMMANDS)
def command() -> None:
    """Make, list, rotate and revoke the tokens with which clients use the keep over the network."""
