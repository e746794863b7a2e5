"""The command itself: finds its subcommands by name and loads only the one that is called."""

import importlib
import os
from typing import Any

import click

COMMANDS = {
    "accept": "Accept a project's configuration, or a tool that changed.",
    "add": "Import the tools of an MCP server or an HTTP API.",
    "approve": "Answer calls that wait for a person.",
    "audit": "Look into the log of calls, check it, prove from it.",
    "backup": "Back up what the keep remembers, and restore it.",
    "call": "Call a tool, guarded and recorded.",
    "completion": "Print the completion script for a shell.",
    "disable": "Keep tools from answering.",
    "doctor": "Say what isolation this machine can give.",
    "enable": "Let tools answer again.",
    "init": "Write a commented .agent/config.yml.",
    "install": "Let an MCP client use the keep: write its configuration.",
    "lint": "Advise on definitions without registering them.",
    "list": "List the tools.",
    "lock": "Write toolkeep.lock, or check it against what upstreams offer.",
    "mcp": "Serve the tools to an MCP client.",
    "new": "Write a tool with its tests.",
    "policy": "Check policies, explain decisions, replay them.",
    "remove": "Remove an upstream and what is remembered of it.",
    "serve": "Serve the tools over HTTP.",
    "show": "Show a tool: description, parameters, schema.",
    "sign-in": "Sign in to an upstream MCP server.",
    "store": "Look after the database of custom definitions.",
    "token": "Make and revoke tokens for use over the network.",
    "validate": "Check a call's arguments without running it.",
}


def load_command(name: str = "") -> None:
    """Import the file of a command, if that is one."""
    if name in COMMANDS:
        importlib.import_module(f"toolkeep.cli.{name.replace('-', '_')}")


class LazyGroup(click.Group):
    """A group that imports a command's file when the command is called."""

    def __init__(
        self,
        *args: Any,
        package: str = "toolkeep.cli",
        commands_help: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._package = package
        self.commands_help = COMMANDS if commands_help is None else commands_help

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        """The commands, in order."""
        return sorted(self.commands_help)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- click's signature
        """One command."""
        if cmd_name not in self.commands_help:
            return None
        module = importlib.import_module(f"{self._package}.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's signature
        """The list in --help, without loading any command."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(self.commands_help.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command, or a usage error with the nearest name."""
        if args and args[0] not in self.commands_help and not args[0].startswith("-"):
            from toolkeep.validation.nearest import nearest_name

            near = nearest_name(args[0], list(self.commands_help))
            hint = f" Did you mean '{near}'?" if near else " Try 'toolkeep --help'."
            raise click.UsageError(f"No such command '{args[0][:64]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)


def _version(ctx: click.Context, _: click.Parameter, value: Any) -> None:
    if value:
        from toolkeep import __version__

        click.echo(f"toolkeep {__version__}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version."
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Keeps an LLM agent's tools.

    Exit status: 0 done, 1 refused or failed, 2 wrong usage.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
