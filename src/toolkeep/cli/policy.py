"""`toolkeep policy`: each subcommand has its own module, loaded on use: the policy engine loads slowly."""

import click

from toolkeep.cli.main import LazyGroup

COMMANDS = {
    "check": "Check policies and their examples before they are used.",
    "explain": "Say whether a call would be allowed, and why.",
    "replay": "Evaluate recorded calls against other policies.",
}


@click.group("policy", cls=LazyGroup, prefix="toolkeep.cli.policy_", commands_help=COMMANDS)
def command() -> None:
    """Check policies, explain decisions, replay them."""
