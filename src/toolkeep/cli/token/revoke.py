"""`toolkeep token revoke`: a token no longer counts, from now on."""

from pathlib import Path

import click

from toolkeep.cli.options import common, print_json, project, say_done
from toolkeep.cli.token.shown import token_data, tokens_of


@click.command("revoke")
@click.argument("token_id", metavar="ID")
@project
@common
def command(token_id: str, project: Path | None, *, as_json: bool) -> None:
    """Let the token of ID, or whose id begins so, no longer count."""
    with tokens_of(project) as tokens:
        token = tokens.revoke(token_id)
    if as_json:
        print_json(token_data(token))
    else:
        say_done(f"revoked {token.id} ({token.name})")
