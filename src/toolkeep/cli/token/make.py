"""`toolkeep token make`: a new token, shown this once."""

from pathlib import Path
from typing import Final

import click

from toolkeep.assembly import project_folder
from toolkeep.cli.agents import say_if_undeclared
from toolkeep.cli.options import common, project
from toolkeep.cli.token.shown import show_made, tokens_of
from toolkeep.limits import TOKEN_DAYS
from toolkeep.tokens import Scope

_CALLING: Final = frozenset((Scope.CALL, Scope.MCP, Scope.ADMIN))
"""Scopes with which tools are called."""


@click.command("make")
@click.argument("name")
@click.option(
    "-s",
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice([scope.value for scope in Scope]),
    help="What its bearer may do; may be given several times.",
)
@click.option("--agent", default="", help="As whom its bearer calls tools; by default NAME.")
@click.option("--days", type=click.IntRange(1), help=f"How long it counts; by default {TOKEN_DAYS:.0f}.")
@click.option("--no-end", is_flag=True, help="It counts until it is revoked.")
@project
@common
def command(
    name: str,
    scopes: tuple[str, ...],
    agent: str,
    days: int | None,
    project: Path | None,
    *,
    no_end: bool,
    as_json: bool,
) -> None:
    """Make a token called NAME and print it, this once; only a hash of it is kept."""
    if no_end and days is not None:
        raise click.UsageError("Say --days or --no-end.")
    lasts = None if no_end else float(days or TOKEN_DAYS)
    with tokens_of(project) as tokens:
        made = tokens.make(name, scopes, agent=agent, days=lasts)
        show_made(tokens, made, as_json=as_json)
    if not _CALLING.isdisjoint(made.token.scopes):
        say_if_undeclared(made.token.agent, project_folder(project))
