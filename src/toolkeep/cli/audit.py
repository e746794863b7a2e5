"""`toolkeep audit`: read the audit log, verify it, and prove single records from it.

Kept bodies (arguments and results) are looked up by hash. Imports of the log and its databases happen inside
the commands, so that `toolkeep audit --help` and shell completion stay fast.
"""

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from toolkeep.audit.errors import BodyUnavailable
from toolkeep.cli.main import CommandGroup
from toolkeep.cli.options import common, files, print_json, project, say, say_columns, say_done, say_failed
from toolkeep.errors import FileUnreadable, NotRecorded
from toolkeep.host.files import is_there
from toolkeep.text.display import counted

if TYPE_CHECKING:
    from toolkeep.audit.entry import Entry
    from toolkeep.storage.log.audit_log import AuditLog
    from toolkeep.storage.sqlite.bodies_db import Bodies


@click.group("audit", cls=CommandGroup)
def command() -> None:
    """Look into the log of calls, check it, prove from it."""


_PREFIX: Final = 8
"""Shortest prefix of a call id; a shorter one could be a mistyped index."""


def state_of(project: Path | None) -> Path:
    """The state folder of a project; raises if nothing was ever recorded."""
    from toolkeep.keep.open import open_state, project_folder
    from toolkeep.storage.keys import Keys

    state = open_state(project_folder(project))
    # A deleted log must not look like none: the signed key file shows that there was one, and `verify`
    # reports it.
    if state is None or not (is_there(state.folder / "audit") or is_there(Keys(state.folder).signed)):
        hint = "there is a log after the first call; --project names the folder of another project"
        raise NotRecorded("no call of this project was recorded yet", hint)
    return state.folder


@contextlib.contextmanager
def log_of(project: Path | None) -> "Iterator[AuditLog]":
    """Open the audit log of a project."""
    from toolkeep.storage.log.audit_log import AuditLog

    with AuditLog(state_of(project)) as log:
        yield log


@contextlib.contextmanager
def bodies_of(project: Path | None) -> "Iterator[Bodies]":
    """Open the store of kept arguments and results of a project."""
    from toolkeep.storage.sqlite.bodies_db import Bodies

    with contextlib.closing(Bodies(state_of(project))) as bodies:
        yield bodies


def entries_of_call(log: "AuditLog", call_id: str) -> "list[Entry]":
    """The records of a call by id or unique prefix; raises if there is none or more than one."""
    found: dict[str, list[Entry]] = {}
    for entry in log.read():
        if _is_meant(call := str(entry.record.get("call", "")), call_id):
            found.setdefault(call, []).append(entry)
    if not found:
        hint = f"`toolkeep audit list` shows the ids of calls; {_PREFIX} characters of one are enough"
        raise NotRecorded(f"no call {call_id[:64]!r} is in the log", hint)
    if len(found) > 1:
        raise NotRecorded(f"{len(found)} calls begin with {call_id[:64]!r}", "give more of the id")
    return found.popitem()[1]


def _is_meant(call: str, given: str) -> bool:
    return call == given or (len(given) >= _PREFIX and call.startswith(given))


def summary(entry: "Entry") -> dict[str, Any]:
    """The fields of a record for a list."""
    record = entry.record
    return {
        "index": entry.index,
        "time": record.get("time", ""),
        "type": record.get("type") or record.get("event", ""),  # records of the log about itself have `event`
        "call": record.get("call", ""),
        "tool": record.get("tool", ""),
        "agent": record.get("agent", ""),
        "status": record.get("status") or record.get("decision") or record.get("outcome", ""),
        "codes": record.get("codes", []),
    }


def read_text(path: Path) -> str:
    """Read a text file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileUnreadable(str(path), getattr(error, "strerror", None) or "is not text") from error


def read_checkpoint(path: Path) -> str:
    """Read a checkpoint file; raises for anything else, which would prove nothing about the log."""
    from toolkeep.audit.checkpoint import Checkpoint
    from toolkeep.audit.errors import NoteInvalid
    from toolkeep.audit.signed_note import Note

    text = read_text(path)
    try:
        Checkpoint.parse(Note.parse(text).text)
    except NoteInvalid as error:
        reason = f"is no checkpoint: {error.message}; `toolkeep audit checkpoint` prints one"
        raise FileUnreadable(str(path), reason) from error
    return text


_CALL_CHARS: Final = 16
"""Characters of a call id in a list: enough to identify it."""


@command.command("list", short_help="List the newest records.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many at most."
)
@click.option("--tool", help="Only records of this tool.")
@click.option("--agent", help="Only records of this agent.")
@project
@common
def list_records(
    limit: int, tool: str | None, agent: str | None, project: Path | None, *, as_json: bool
) -> None:
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


_INDEX_DIGITS: Final = 10
"""Most digits of an index; longer arguments are call ids."""


@command.command("show", short_help="Show a record, or all records of a call.")
@click.argument("which", metavar="INDEX|CALL")
@project
@common
def show_records(which: str, project: Path | None, *, as_json: bool) -> None:
    """Show the record at INDEX, or every record of CALL with its arguments and result."""
    with log_of(project) as log:
        entries = _entries(log, which)
    with bodies_of(project) as bodies:
        data = [_data(entry, bodies) for entry in entries]
    if as_json:
        print_json(data)
        return
    for one in data:
        print_json(one)


def _entries(log: "AuditLog", which: str) -> "list[Entry]":
    if not (which.isascii() and which.isdecimal() and len(which) <= _INDEX_DIGITS):
        return entries_of_call(log, which)
    entries = log.read(int(which), int(which) + 1)
    if not entries:
        raise NotRecorded(f"the log has no record {which}", "`toolkeep audit list` shows the newest ones")
    return entries


def _data(entry: "Entry", bodies: "Bodies") -> dict[str, Any]:
    data = {"index": entry.index, "hash": entry.hash, **entry.record}
    if entry.record.get("has_arguments"):
        data["arguments"] = _body(bodies, entry.record["argument_hash"])
    if entry.record.get("result_hash"):
        data["result"] = _body(bodies, entry.record["result_hash"])
    return data


def _body(bodies: "Bodies", digest: str) -> Any:
    try:
        return json.loads(bodies.get(digest))
    except BodyUnavailable as error:
        return f"({error.message})"
    except ValueError:
        return "(bytes)"


@command.command("verify", short_help="Check the log, or a receipt.")
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
def verify_log(
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
    from toolkeep.storage.log.verify_folder import verify

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
    from toolkeep.audit.receipt import verify_receipt
    from toolkeep.audit.signed_note import VerifierKey

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


@command.command("receipt", short_help="Print the receipt of a call.")
@click.argument("call")
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Prove it under this checkpoint of the log, with the signatures of witnesses that it has.",
)
@project
@common
def print_receipt(call: str, checkpoint: Path | None, project: Path | None, *, as_json: bool) -> None:  # noqa: ARG001 -- a receipt is JSON
    """Print the receipt of the call with this id: its outcome, and the proof that the log holds it."""
    from toolkeep.audit.receipt import Receipt

    given = read_checkpoint(checkpoint) if checkpoint else None
    with log_of(project) as log:
        entry = entries_of_call(log, call)[-1]
        receipt = Receipt.of(entry, log.prove(entry.index, given))
    print_json(receipt.to_dict())


@command.command("checkpoint", short_help="Print a signed checkpoint, to be kept elsewhere.")
@project
@common
def print_checkpoint(project: Path | None, *, as_json: bool) -> None:
    """Print a signed checkpoint over everything recorded so far."""
    with log_of(project) as log:
        note = log.checkpoint()
    if as_json:
        print_json({"checkpoint": note})
    else:
        click.echo(note, nl=False)


@command.command("export", short_help="Print the records with what is needed to check them.")
@click.option("--from", "start", type=click.IntRange(0), default=0, help="The first record.")
@project
@common
def export_log(start: int, project: Path | None, *, as_json: bool) -> None:  # noqa: ARG001 -- always JSON
    """Print one line for the key and checkpoint, then one for each record."""
    with log_of(project) as log:
        head = {"key": str(log.public_key()), "checkpoint": log.checkpoint()}
        click.echo(json.dumps(head, ensure_ascii=False))
        for entry in log.read(start):
            click.echo(entry.line.decode())


@command.command("key", short_help="Print the public key of the log.")
@project
@common
def print_key(project: Path | None, *, as_json: bool) -> None:
    """Print the key that receipts and checkpoints are checked with."""
    with log_of(project) as log:
        key = str(log.public_key())
    if as_json:
        print_json({"key": key})
    else:
        say(key)


@command.command("rotate-key", short_help="Go on with a new signing key.")
@project
@common
def rotate_key(project: Path | None, *, as_json: bool) -> None:
    """Go on with a new signing key; the log says so, signed with the old one."""
    with log_of(project) as log:
        key = str(log.rotate_key())
    if as_json:
        print_json({"key": key})
    else:
        say_done(f"the log goes on with {key}")


@command.command("replay", short_help="Run a recorded call again and compare.")
@click.argument("call")
@files
@project
@common
def replay_call(call: str, files: tuple[Path, ...], project: Path | None, *, as_json: bool) -> None:
    """Run the recorded CALL again and compare the hashes of the results.

    Only pure and deterministic tools can be replayed. Exit status 0 if both results are the same.
    """
    import asyncio

    from toolkeep.cli.tool_selection import keep_with

    with log_of(project) as log:
        call_id = entries_of_call(log, call)[0].record["call"]
    with keep_with(files, project) as keep:
        replayed = asyncio.run(keep.replay(call_id, agent="operator"))
    again = replayed.result
    if as_json:
        hashes = {"recorded": replayed.recorded_hash, "now": again.hash}
        print_json({"same": replayed.is_same, **hashes, "call_id": again.call_id})
    elif replayed.is_same:
        say_done(f"{again.tool} gave the same result again")
    else:
        why = "" if again.ok else f": {again.text}"
        say_failed(f"{again.tool} did not give the same result again{why}")
        say(f"  recorded {replayed.recorded_hash}", f"  now      {again.hash or '(none)'}")
    if not replayed.is_same:
        sys.exit(1)


_DAY_SECONDS = 86_400  # a unit, no bound


@command.command("erase", short_help="Erase kept arguments and results; the log stays whole.")
@click.argument("call", required=False)
@click.option(
    "--older-than", "days", type=click.FloatRange(0), metavar="DAYS", help="Everything that is older."
)
@project
@common
def erase_bodies(call: str | None, days: float | None, project: Path | None, *, as_json: bool) -> None:
    """Erase what is kept of a CALL, or everything older than some days.

    The log keeps the hashes, so every proof still holds. Bodies that several calls share go for all of them.
    """
    if (call is None) == (days is None):
        raise click.UsageError("Name a CALL, or say --older-than DAYS.")
    with bodies_of(project) as bodies:
        if days is not None:
            erased = bodies.erase_older(time.time() - days * _DAY_SECONDS)
        else:
            erased = [digest for digest in _digests(project, call or "") if bodies.erase(digest)]
    if as_json:
        print_json({"erased": erased})
    else:
        say_done(f"erased {counted(len(erased), 'body', 'bodies')}")


def _digests(project: Path | None, call: str) -> list[str]:
    """Hashes of the stored bodies of a call."""
    with log_of(project) as log:
        records = [entry.record for entry in entries_of_call(log, call)]
    return sorted({r[field] for r in records for field in ("argument_hash", "result_hash") if r.get(field)})


@command.command("witness", short_help="Answer requests for cosignatures.")
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
def run_witness(
    folder: Path, name: str, keys: tuple[str, ...], requests: Path | None, *, as_json: bool
) -> None:
    """Keep a witness in FOLDER, which should lie where whoever owns the log cannot write."""
    from toolkeep.storage.log.witness_folder import Answered, Witness

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
