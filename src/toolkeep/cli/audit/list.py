"""`toolkeep audit list`: the newest records."""

from pathlib import Path
from typing import Any, Final

import click

from toolkeep.cli.audit.folder import log_of, summary
from toolkeep.cli.options import common, print_json, project, say, say_columns

_CALL_CHARS: Final = 16
"""Of a call's id: enough to name it with."""


@click.command("list")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many at most."
)
@click.option("--tool", help="Only records of this tool.")
@click.option("--agent", help="Only records of this agent.")
@project
@common
def command(limit: int, tool: str | None, agent: str | None, project: Path | None, *, as_json: bool) -> None:
    """List the newest records, oldest first."""
    with log_of(project) as log:
        rows = [summary(entry) for entry in log.read()]
    fitting = [r for r in rows if (not tool or r["tool"] == tool) and (not agent or r["agent"] == agent)]
    shown = fitting[-limit:]
    if as_json:
        print_json(shown)
        return
    say_columns([_cells(row) for row in shown])
    say("", f"{len(shown)} of {len(rows)} records")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    status = row["status"] if isinstance(row["status"], str) else ""
    words = " ".join([status, *row["codes"]]).strip()
    return (
        f"{row['index']:>6}",
        row["time"],
        row["call"][:_CALL_CHARS],
        row["type"],
        row["tool"],
        row["agent"],
        words,
    )
