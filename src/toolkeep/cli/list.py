"""`toolkeep list`: every tool, by category, then by name."""

from pathlib import Path

import click

from toolkeep.cli.options import common, files, print_json, say
from toolkeep.cli.tools import keep_with
from toolkeep.wording import shorten

_HEADS = ("NAME", "VERSION", "CATEGORY", "DANGER", "DESCRIPTION")
_DESCRIPTION_CHARS = 60


@click.command("list")
@files
@common
def command(files: tuple[Path, ...], *, as_json: bool) -> None:
    """List the tools."""
    definitions = [tool.definition for tool in keep_with(files).tools()]
    if as_json:
        print_json([{**d.to_dict(), "parameters": list(d.properties)} for d in definitions])
        return
    rows = [
        (
            d.name,
            d.version,
            d.category.value,
            d.danger_level.value,
            shorten(d.description.split("\n")[0], _DESCRIPTION_CHARS),
        )
        for d in definitions
    ]
    widths = [max(len(row[column]) for row in (_HEADS, *rows)) for column in range(len(_HEADS))]
    for row in (_HEADS, *rows):
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    say(f"\nTotal: {len(rows)} {'tool' if len(rows) == 1 else 'tools'}")
