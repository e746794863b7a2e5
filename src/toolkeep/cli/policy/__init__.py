"""`toolkeep policy`: check policies before they are used, and learn why a call is allowed or not."""

import click

from toolkeep.cli.main import LazyGroup

COMMANDS = {
    "check": "Check policies and their examples before they are used.",
    "explain": "Say whether a call would be allowed, and why.",
    "replay": "Judge the recorded calls by other policies.",
}


@click.group("policy", cls=LazyGroup, package="toolkeep.cli.policy", commands_help=COMMANDS)
def command() -> None:
    """Check policies, explain decisions, replay them."""
