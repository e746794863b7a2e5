"""The `toolkeep` command. Every top-level command has its own module, imported only when it is called.

A command without subcommands, or a group of them, stands in `cli/<name>.py` under the name `command`.
"""

import importlib
import os
from typing import Any

import click

COMMANDS = {
    "accept": "Accept a project's configuration, or a changed tool.",
    "add": "Import the tools of an MCP server or an HTTP API.",
    "agents": "List agents with what they hold, and withdraw it.",
    "approvals": "List waiting calls and approval rules.",
    "approve": "Approve a waiting call.",
    "audit": "Read, verify and export the audit log.",
    "backup": "Back up and restore the state of a keep.",
    "call": "Call a tool.",
    "completion": "Print a shell completion script.",
    "danger": "Set the danger of tools.",
    "database": "Manage the database that servers share.",
    "demo": "Serve a demo keep: its page, with calls to approve.",
    "deny": "Deny a waiting call.",
    "disable": "Disable tools.",
    "doctor": "Check which isolation this machine supports.",
    "drift": "List what agents did that they never did before.",
    "enable": "Enable tools again.",
    "fleet": "See the workers on other machines, and restore one.",
    "flow": "Declare roles and labels of imported tools.",
    "init": "Write a commented .agent/config.yml.",
    "install": "Add the keep to an MCP client's configuration.",
    "learn": "Propose policies from what agents did.",
    "lint": "Check definitions for problems and improvements.",
    "list": "List the tools.",
    "lock": "Write or check toolkeep.lock.",
    "mcp": "Serve the tools to an MCP client.",
    "new": "Create a tool with its tests.",
    "policy": "Check, explain and replay policy decisions.",
    "remove": "Remove an upstream and its state.",
    "serve": "Serve the tools over HTTP, with a web page.",
    "sessions": "List the sessions of agents, show their calls, and end them.",
    "show": "Show a tool: description, parameters, schema.",
    "sign-in": "Sign in to an upstream MCP server.",
    "store": "Store custom definitions; migrate their database.",
    "token": "Create and revoke API tokens.",
    "undo": "Take back what a call wrote to files.",
    "update": "Update the packages of an MCP server.",
    "validate": "Check the arguments of a call without running it.",
    "worker": "Run calls for servers on other machines.",
}


def load_command(name: str = "") -> None:
    """Import the module of a command, if there is such a command."""
    if name in COMMANDS:
        importlib.import_module(_module_name("toolkeep.cli.", name))


def _module_name(prefix: str, command: str) -> str:
    return prefix + command.replace("-", "_")


class CommandGroup(click.Group):
    """A group that suggests the nearest name for an unknown subcommand."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand, or raise a usage error that names the nearest one."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            from toolkeep.text.nearest import nearest_name

            near = nearest_name(args[0], known)
            hint = f" Did you mean '{near}'?" if near else " Try 'toolkeep --help'."
            raise click.UsageError(f"No such command '{args[0][:64]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)


class LazyGroup(CommandGroup):
    """A group that imports the module of a subcommand when that subcommand is called.

    The module is called `prefix` plus the name of the command, and holds it as `command`.
    """

    def __init__(
        self,
        *args: Any,
        prefix: str = "toolkeep.cli.",
        commands_help: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._prefix = prefix
        self.commands_help = COMMANDS if commands_help is None else commands_help

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        """List the subcommands in alphabetical order."""
        return sorted(self.commands_help)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- click's signature
        """Import and return one subcommand."""
        # Only names from the table are imported: the word comes from the command line.
        if cmd_name not in self.commands_help:
            return None
        module = importlib.import_module(_module_name(self._prefix, cmd_name))
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's signature
        """Write the list in --help without importing any subcommand."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(self.commands_help.items()))


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
    """Runs the tools of LLM agents: checked, permitted, approved, sandboxed, recorded.

    Exit status: 0 success, 1 refused or failed, 2 usage error.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
