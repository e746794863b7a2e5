"""`toolkeep agents`: what agents hold; withdraw it at once, and restore it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from toolkeep.cli.approvals import ListByDefault
from toolkeep.cli.options import common, print_json, project, say, say_done
from toolkeep.cli.tables import Column, say_table
from toolkeep.cli.tool_selection import keep_with
from toolkeep.errors import Code, ToolkeepError
from toolkeep.keep.keep import Keep
from toolkeep.text.display import counted, echo_name, visible

if TYPE_CHECKING:
    from toolkeep.keep.agent_access import Access
    from toolkeep.server.api.grant_routes import Action

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


@command.command("show")
@click.argument("agent")
@project
@common
def show_command(agent: str, project: Path | None, *, as_json: bool) -> None:
    """Show what AGENT holds, its calls of the last week, and what it may do with each tool, and why.

    A decision holds for every call whose arguments stay inside the scope that it names. Policies that may
    change it for some arguments are named. `toolkeep policy explain` decides about one call.
    """
    from toolkeep.cli.token import tokens_of
    from toolkeep.keep.agent_access import access_of
    from toolkeep.server.api.agent_routes import views_of
    from toolkeep.server.api.statistics import Statistics

    with keep_with(project=project) as keep, tokens_of(project) as tokens:
        if agent not in {*keep.agents, *keep.withdrawn}:
            raise ToolkeepError(
                Code.AGENT_UNKNOWN, f"agent {echo_name(agent)!r} is not declared", hint="see: toolkeep agents"
            )
        (view,) = views_of(keep, [agent], Statistics(), tokens)
        problem = keep.authorizer.problem()
        access = [(tool.name, access_of(keep, agent, tool, problem)) for tool in keep.tools()]
    if as_json:
        tools = [{"tool": name, **msgspec.to_builtins(one)} for name, one in access]
        print_json({**msgspec.to_builtins(view), "tools": tools})
        return
    for text in (*view.holds, *view.permissions) or ("nothing",):
        say(f"  {visible(text)}")
    if view.withdrawn:
        say(f"  withdrawn: {', '.join(map(visible, view.withdrawn))}")
    last = f", the last at {view.last_call_at}" if view.last_call_at else ""
    say(
        f"{counted(view.calls, 'call')} over the last week, {view.refused:,} refused, "
        f"{view.failed:,} failed{last}",
        f"{counted(view.tokens, 'token')}, {counted(view.rules, 'rule')}",
        "",
    )
    say_table(_ACCESS, [(name, _VERDICTS[one.verdict], _why(one)) for name, one in access])


_ACCESS: Final = (Column("TOOL"), Column("CALLS"), Column("WHY"))
_VERDICTS: Final = {"allow": "allowed", "ask": "ask", "deny": "denied"}


def _why(access: "Access") -> str:
    reads = f"; depends on the arguments: {', '.join(access.depends_on)}" if access.depends_on else ""
    return f"{access.why}{reads}"


@command.command("withdraw")
@click.argument("agent")
@click.argument("capability", default="")
@project
@common
def withdraw_command(agent: str, capability: str, project: Path | None, *, as_json: bool) -> None:
    """Withdraw what AGENT holds: one CAPABILITY or permission, or without one everything.

    It counts within a second in every running server, also in others that share the database, and for every
    later start. CAPABILITY is one from the list, such as fs.write:./out, or a kind, such as fs.write. The log
    gets your name.
    """
    _switch("withdraw", agent, capability, project, "withdrawn", as_json=as_json)


@command.command("restore")
@click.argument("agent")
@click.argument("capability", default="")
@project
@common
def restore_command(agent: str, capability: str, project: Path | None, *, as_json: bool) -> None:
    """Restore what was withdrawn from AGENT, with the same CAPABILITY. The log gets your name."""
    _switch("restore", agent, capability, project, "restored", as_json=as_json)


def _switch(
    action: "Action",
    agent: str,
    capability: str,
    project: Path | None,
    done: str,
    *,
    as_json: bool,
) -> None:
    from toolkeep.cli.operator_change import apply
    from toolkeep.server.api.grant_routes import grant_change

    with keep_with(project=project) as keep:
        try:
            change, make = grant_change(keep, agent, action, capability)
        except ValueError as error:
            raise ToolkeepError(Code.AGENT_UNKNOWN, str(error), hint="see: toolkeep agents") from None
        apply(keep, change, make)
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
