"""`toolkeep token rotate`: another token in the place of one, both valid for as long as is said."""

from pathlib import Path

import click

from toolkeep.cli.options import common, project
from toolkeep.cli.token.shown import show_made, tokens_of

_DAY_SECONDS = 86_400


@click.command("rotate")
@click.argument("token_id", metavar="ID")
@click.option(
    "--overlap",
    type=click.IntRange(0, 30 * _DAY_SECONDS),
    default=0,
    show_default=True,
    help="Seconds for which the old one still counts.",
)
@project
@common
def command(token_id: str, overlap: int, project: Path | None, *, as_json: bool) -> None:
    """Make a token like the one of ID, or whose id begins so, and let the old one end."""
    with tokens_of(project) as tokens:
        made = tokens.rotate(token_id, overlap_s=overlap)
        show_made(tokens, made, as_json=as_json)
