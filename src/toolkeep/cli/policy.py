"""`toolkeep policy`: each subcommand has its own module, loaded on use: the policy engine loads slowly."""

import click

from toolkeep.cli.main import LazyGroup

COMMANDS = {
    "check": "Check policies and their examples before they are used.",
    "drop": "Take policies out of force that `policy put` put there.",
    "explain": "Say whether a call would be allowed, and why.",
    "list": "List the policies in force, with their hits of the last week.",
    "put": "Put policies in force beside those of the configuration.",
    "replay": "Evaluate recorded calls against other policies.",
}


@click.group("policy", cls=LazyGroup, prefix="toolkeep.cli.policy_", commands_help=COMMANDS)
def command() -> None:
    """Check policies, explain decisions, replay them, put them in force."""
