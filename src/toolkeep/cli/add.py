"""`toolkeep add`: import third-party tools. Each kind of source has its own module, loaded on use."""

import click

from toolkeep.cli.main import LazyGroup

COMMANDS = {
    "mcp": "Import the tools of an MCP server.",
    "openapi": "Import the operations of an OpenAPI document.",
}


@click.group("add", cls=LazyGroup, prefix="toolkeep.cli.add_", commands_help=COMMANDS)
def command() -> None:
    """Import the tools of others: the change to the configuration is shown, and written once you agree."""
