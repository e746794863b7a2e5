"""`toolkeep audit erase`: arguments and results that should not be kept any longer."""

import contextlib
import time
from pathlib import Path

import click

from toolkeep.cli.audit.folder import entries_of_call, log_of, state_of
from toolkeep.cli.options import common, print_json, project, say_done
from toolkeep.storage.bodies import Bodies
from toolkeep.wording import counted

_DAY_SECONDS = 86_400


@click.command("erase")
@click.argument("call", required=False)
@click.option(
    "--older-than", "days", type=click.FloatRange(0), metavar="DAYS", help="Everything that is older."
)
@project
@common
def command(call: str | None, days: float | None, project: Path | None, *, as_json: bool) -> None:
    """Erase what is kept of a CALL, or everything older than some days.

    The log keeps the hashes, so every proof still holds. Bodies that several calls share go for all of them.
    """
    if (call is None) == (days is None):
        raise click.UsageError("Name a CALL, or say --older-than DAYS.")
    with contextlib.closing(Bodies(state_of(project))) as bodies:
        if days is not None:
            erased = bodies.erase_older(time.time() - days * _DAY_SECONDS)
        else:
            erased = [digest for digest in _digests(project, call or "") if bodies.erase(digest)]
    if as_json:
        print_json({"erased": erased})
    else:
        say_done(f"erased {counted(len(erased), 'body', 'bodies')}")


def _digests(project: Path | None, call: str) -> list[str]:
    """The hashes of what is kept of a call."""
    with log_of(project) as log:
        records = [entry.record for entry in entries_of_call(log, call)]
    return sorted({r[field] for r in records for field in ("argument_hash", "result_hash") if r.get(field)})
