"""`toolkeep audit verify`: is the log what it was, or does a receipt prove what it says?"""

import sys
from pathlib import Path

import click

from toolkeep.cli.audit.folder import state_of
from toolkeep.cli.audit.reading import read_checkpoint, read_text
from toolkeep.cli.options import common, print_json, project, say, say_done


@click.command("verify")
@click.argument("receipt", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--key", metavar="KEY", help="The public key to check with; a receipt needs it.")
@click.option(
    "--witness",
    "witnesses",
    multiple=True,
    metavar="KEY",
    help="The key of a witness that must have cosigned the receipt; may be given several times.",
)
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A checkpoint that was kept elsewhere; may be given several times.",
)
@click.option(
    "--state",
    "folders",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A state folder, in place of the project's; may be given several times.",
)
@project
@common
def command(
    receipt: Path | None,
    key: str | None,
    witnesses: tuple[str, ...],
    checkpoints: tuple[Path, ...],
    folders: tuple[Path, ...],
    project: Path | None,
    *,
    as_json: bool,
) -> None:
    """Check the whole log, or a RECEIPT offline with the public key alone.

    Exit status 0 if nothing is wrong. A log that was rolled back together with its checkpoint is found only
    by a checkpoint that was kept elsewhere.
    """
    if receipt is not None:
        _verify_receipt(receipt, key, witnesses, as_json=as_json)
        return
    if witnesses:
        raise click.UsageError("--witness is for a RECEIPT; for the log, name its checkpoint: --checkpoint.")
    from toolkeep.storage.verify import verify

    outside = {str(path): read_checkpoint(path) for path in checkpoints}
    reports = [
        verify(folder, outside_checkpoints=outside, public_key=key)
        for folder in folders or (state_of(project),)
    ]
    if as_json:
        print_json([report.to_dict() for report in reports] if folders else reports[0].to_dict())
    else:
        for report in reports:
            say(*str(report).split("\n"))
    if not all(report.is_intact for report in reports):
        sys.exit(1)


def _verify_receipt(path: Path, key: str | None, witnesses: tuple[str, ...], *, as_json: bool) -> None:
    from toolkeep.audit.errors import ReceiptInvalid
    from toolkeep.audit.note import VerifierKey
    from toolkeep.audit.receipt import verify_receipt

    if key is None:
        raise click.UsageError("A receipt is checked with --key: the log's public key.")
    text, wanted = read_text(path), [VerifierKey.parse(witness) for witness in witnesses]
    verified = verify_receipt(text, key, witnesses=wanted)
    for witness in wanted:
        if not verify_receipt(text, key, witnesses=[witness]).witnesses:
            raise ReceiptInvalid(f"{witness.name} did not cosign it")
    if as_json:
        data = {"origin": verified.origin, "index": verified.index, "size": verified.size}
        print_json({**data, "record": verified.record, "witnesses": list(verified.witnesses)})
        return
    record = verified.record
    say_done(f"record {verified.index} of {verified.origin}, signed at {verified.size} records")
    for field in ("type", "time", "tool", "version", "agent", "status", "result_hash", "argument_hash"):
        if record.get(field):
            say(f"  {field}: {record[field]}")
    for name in verified.witnesses:
        say(f"  cosigned by: {name}")
