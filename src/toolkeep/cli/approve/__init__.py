"""`toolkeep approve`: answer calls that wait for a person, and look after the rules that came of it."""

import click

from toolkeep.cli.main import LazyGroup

COMMANDS = {
    "approve": "Say yes to a call.",
    "deny": "Say no to a call.",
    "list": "List the calls that wait.",
    "revoke": "End a rule.",
    "rules": 'List the rules that "always" made.',
    "show": "Show a call that waits.",
}


@click.group("approve", cls=LazyGroup, package="toolkeep.cli.approve", commands_help=COMMANDS)
def command() -> None:
    """Answer calls that wait for a person, from another terminal than theirs."""
