"""`toolkeep audit erase`: arguments and results that should not be kept any longer."""

import time
from pathlib import Path

import click

from toolkeep.cli.audit.folder import entries_of_call, log_of, state_of
from toolkeep.cli.options import common, print_json, project, say
from toolkeep.storage.bodies import Bodies

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
    bodies = Bodies(state_of(project))
    if days is not None:
        erased = bodies.erase_older(time.time() - days * _DAY_SECONDS)
    else:
        with log_of(project) as log:
            records = [entry.record for entry in entries_of_call(log, call or "")]
        digests = {r[field] for r in records for field in ("argument_hash", "result_hash") if r.get(field)}
        erased = [digest for digest in sorted(digests) if bodies.erase(digest)]
    if as_json:
        print_json({"erased": erased})
    else:
        say(f" erased {len(erased)} {'body' if len(erased) == 1 else 'bodies'}", label="✓", color="green")
