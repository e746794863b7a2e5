"""`toolkeep audit witness`: keeps checkpoints elsewhere, checks that logs only grow, and cosigns."""

from pathlib import Path

import click

from toolkeep.cli.options import common, print_json, say
from toolkeep.wording import counted


@click.command("witness")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--name", default="toolkeep-witness", show_default=True, help="The witness's name, for a new one."
)
@click.option("--trust", "keys", multiple=True, metavar="KEY", help="Cosign the log with this public key.")
@click.option(
    "--requests",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Answer the requests in here.",
)
@common
def command(folder: Path, name: str, keys: tuple[str, ...], requests: Path | None, *, as_json: bool) -> None:
    """Keep a witness in FOLDER, which should lie where whoever owns the log cannot write."""
    from toolkeep.storage.witness import Answered, Witness

    witness = Witness(folder, name=name)
    for key in keys:
        witness.trust(key)
    answered = witness.answer_requests(requests) if requests else Answered()
    if as_json:
        print_json(
            {
                "key": str(witness.public_key),
                "trusted": list(keys),
                "answered": sum(answered),
                "refused": answered.refused,
            }
        )
        return
    say(f"witness key: {witness.public_key}")
    if requests:
        why = f", {answered.refused} of them refused: see the .refused files" if answered.refused else ""
        say(f"{counted(sum(answered), 'request')} answered{why}")
    if not witness.knows_a_log:
        say("  It knows no log yet: give --trust the key that `toolkeep audit key` prints.", err=True)
