"""`toolkeep drift`: what agents did that they never did before, and that a person has seen it (FLO-8)."""

import asyncio
import sys
from pathlib import Path
from typing import Final

import click
import msgspec

from toolkeep.approval.question_text import name
from toolkeep.cli.approval_prompt import can_ask, person
from toolkeep.cli.approvals import ListByDefault
from toolkeep.cli.audit import log_of
from toolkeep.cli.options import common, is_terminal, print_json, project, say, say_done
from toolkeep.cli.tables import Column, say_table
from toolkeep.errors import NotAccepted, NotRecorded
from toolkeep.keep.drift_news import DriftNews, DriftReader
from toolkeep.text.display import echo_name

_COLUMNS: Final = (Column("TIME"), Column("AGENT"), Column("NEW"), Column("TOOL"), Column("WHAT"))


@click.group("drift", cls=ListByDefault)
def command() -> None:
    """List what agents did that they never did before, and note that you have seen it.

    Needs `drift: true` in the configuration. Without a command, it is listed.
    """


@command.command("list", short_help="List what is new.")
@project
@common
def list_drift(project: Path | None, *, as_json: bool) -> None:
    """List what nobody acknowledged, newest first."""
    found = _found(project)
    if as_json:
        print_json([msgspec.to_builtins(one) for one in found])
    elif not found:
        say("Nothing new.")
    else:
        say_table(_COLUMNS, [_row(one) for one in found])


def _found(project: Path | None) -> list[DriftNews]:
    with log_of(project) as log:
        return DriftReader().open(log)


def _row(one: DriftNews) -> tuple[str, ...]:
    more = f" and {one.count - len(one.values)} more" if one.count > len(one.values) else ""
    return one.time, name(one.agent), one.kind, echo_name(one.tool), ", ".join(one.values) + more


@command.command("acknowledge", short_help="Note that you have seen it.")
@click.argument("agent")
@project
@common
def acknowledge(agent: str, project: Path | None, *, as_json: bool) -> None:
    """Note that you have seen what AGENT did; the page and this list no longer show it.

    Needs a terminal: an agent must not note it in your place. The log records it.
    """
    from toolkeep.cli.tool_selection import keep_with
    from toolkeep.server.api import drift_routes
    from toolkeep.server.api.admin_change import Confirmation
    from toolkeep.stores.api_tokens import Scope, Token

    if not (can_ask() and is_terminal(sys.stdout)):
        raise NotAccepted("acknowledging needs a terminal", hint="run it in a terminal, or use the page")
    mine = [one for one in _found(project) if one.agent == agent]
    if not mine:
        raise NotRecorded(f"nothing new of agent {echo_name(agent)!r}", "see: toolkeep drift")
    who = f"operator:{person()}"
    operator = Token(id="terminal", name=who, scopes=(Scope.ADMIN,), agent="operator", created_at=0.0)
    said = Confirmation(caller=operator, person=who, way="terminal", typed_name=agent, signed_in_at=None)
    with keep_with(project=project) as keep:
        asyncio.run(drift_routes.acknowledge(keep, said, agent, mine[0].time))
    if as_json:
        print_json({"success": True, "agent": agent, "until": mine[0].time})
    else:
        say_done(f"noted that you have seen what {name(agent)} did")
