"""`toolkeep add`: import the tools of others."""

import click

from toolkeep.cli.main import LazyGroup

COMMANDS = {
    "mcp": "Import the tools of an MCP server.",
    "openapi": "Import the operations of an OpenAPI document.",
}


@click.group("add", cls=LazyGroup, package="toolkeep.cli.add", commands_help=COMMANDS)
def command() -> None:
    """Import the tools of others: the change to the configuration is shown, and written once you agree."""
