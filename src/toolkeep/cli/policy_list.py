"""`toolkeep policy list`: the policies in force, and what each decided over the last week."""

from pathlib import Path
from typing import Final

import click
import msgspec

from toolkeep.cli.options import common, print_json, project
from toolkeep.cli.tables import Column, say_table
from toolkeep.cli.tool_selection import keep_with
from toolkeep.server.api.policy_routes import PolicyView, list_policies
from toolkeep.server.api.statistics import Statistics

_COLUMNS: Final = (
    Column("POLICY"), Column("EFFECT"), Column("WHERE"), Column("HITS"), Column("REASON")
)  # fmt: skip


@click.command("list")
@project
@common
def command(project: Path | None, *, as_json: bool) -> None:
    """List the policies in force: of the configuration, put in force by a person, and built in."""
    with keep_with(project=project) as keep:
        found = list_policies(keep, Statistics().by_policy(keep))
    if as_json:
        print_json([msgspec.to_builtins(one) for one in found])
        return
    rows = [(one.id, _effect(one), one.place, f"{one.hits:,}", one.reason) for one in found]
    say_table(_COLUMNS, rows)


def _effect(one: PolicyView) -> str:
    asks, shadow = ", asks" if one.asks else "", ", in shadow" if one.is_shadow else ""
    return f"{one.effect}{asks}{shadow}"
