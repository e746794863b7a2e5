"""`toolkeep token list`: who has which token, and when it was last used."""

import time
from pathlib import Path

import click

from toolkeep.cli.options import common, print_json, project, say, say_columns
from toolkeep.cli.token.shown import moment, token_data, tokens_of
from toolkeep.tokens import Token


@click.command("list")
@click.option("--all", "shows_all", is_flag=True, help="Those that no longer count too.")
@project
@common
def command(project: Path | None, *, shows_all: bool, as_json: bool) -> None:
    """List the tokens that count, oldest first: id, name, agent, scopes, end, last use."""
    now = time.time()
    with tokens_of(project) as tokens:
        found = [token for token in tokens.list() if shows_all or token.is_live(now)]
    if as_json:
        print_json([token_data(token) for token in found])
        return
    say_columns([_row(token, now) for token in found])
    if not found:
        say("no token counts")


def _row(token: Token, now: float) -> tuple[str, ...]:
    scopes = ",".join(scope.value for scope in token.scopes)
    used = f"last used {moment(token.last_used_at)}" if token.last_used_at else "never used"
    return token.id, token.name, f"as {token.agent}", scopes, _end(token, now), used


def _end(token: Token, now: float) -> str:
    if token.revoked_at is not None:
        return f"revoked {moment(token.revoked_at)}"
    if token.expires_at is None:
        return "no end"
    return f"{'ends' if token.is_live(now) else 'ended'} {moment(token.expires_at)}"
