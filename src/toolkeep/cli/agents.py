"""`toolkeep agents`: what agents hold; withdraw it at once, and restore it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from toolkeep.cli.approvals import ListByDefault
from toolkeep.cli.options import common, print_json, project, say_done
from toolkeep.cli.tables import Column, say_table
from toolkeep.cli.tool_selection import keep_with
from toolkeep.errors import Code, ToolkeepError
from toolkeep.keep.keep import Keep

_COLUMNS: Final = (Column("AGENT"), Column("HOLDS"), Column("WITHDRAWN"))


@click.group("agents", cls=ListByDefault)
def command() -> None:
    """List agents with what they hold, withdraw it, and restore it.

    Without a command, they are listed.
    """


@command.command("list")
@project
@common
def list_command(project: Path | None, *, as_json: bool) -> None:
    """List the agents with what they hold now, and what is withdrawn."""
    with keep_with(project=project) as keep:
        agents = [_view(keep, name) for name in sorted({*keep.agents, *keep.withdrawn})]
    if as_json:
        print_json(agents)
        return
    say_table(
        _COLUMNS,
        [
            (
                agent["agent"],
                ", ".join((*agent["capabilities"], *agent["permissions"])) or "nothing",
                ", ".join(agent["withdrawn"]),
            )
            for agent in agents
        ],
    )


@command.command("withdraw")
@click.argument("agent")
@click.argument("capability", default="")
@project
@common
def withdraw_command(agent: str, capability: str, project: Path | None, *, as_json: bool) -> None:
    """Withdraw what AGENT holds: one CAPABILITY or permission, or without one everything.

    It counts within a second in every running server, also in others that share the database, and for every
    later start. CAPABILITY is one from the list, such as fs.write:./out, or a kind, such as fs.write.
    """
    _switch(Keep.withdraw, agent, capability, project, "withdrawn", as_json=as_json)


@command.command("restore")
@click.argument("agent")
@click.argument("capability", default="")
@project
@common
def restore_command(agent: str, capability: str, project: Path | None, *, as_json: bool) -> None:
    """Restore what was withdrawn from AGENT, with the same CAPABILITY."""
    _switch(Keep.restore, agent, capability, project, "restored", as_json=as_json)


def _switch(
    change: Callable[[Keep, str, str], None],
    agent: str,
    capability: str,
    project: Path | None,
    done: str,
    *,
    as_json: bool,
) -> None:
    with keep_with(project=project) as keep:
        try:
            change(keep, agent, capability)
        except ValueError as error:
            raise ToolkeepError(Code.AGENT_UNKNOWN, str(error), hint="see: toolkeep agents") from None
        view = _view(keep, agent)
    if as_json:
        print_json(view)
    else:
        say_done(f"{capability or 'everything'} of {agent} is {done}")


def _view(keep: Keep, name: str) -> dict[str, Any]:
    held = keep.agents.get(name)
    return {
        "agent": name,
        "capabilities": [str(one) for one in held.capabilities] if held else [],
        "permissions": list(held.permissions) if held else [],
        "withdrawn": sorted(one or "everything" for one in keep.withdrawn.get(name, ())),
    }
