"""`toolkeep audit`: read the audit log, verify it, and prove single records from it.

Kept bodies (arguments and results) are looked up by hash. Imports of the log and its databases happen inside
the commands, so that `toolkeep audit --help` and shell completion stay fast.
"""

import asyncio
import contextlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar

import click

from toolkeep.audit.errors import DIAGNOSIS_NOT_KEPT, REFUSAL_EXPIRED, BodyState, BodyUnavailable
from toolkeep.cli.audit_records import (
    COLUMNS,
    SERVER_COLUMNS,
    TYPICAL,
    Followed,
    RecordRows,
    ServerName,
    cells,
    merge_rows,
)
from toolkeep.cli.main import CommandGroup
from toolkeep.cli.options import common, files, print_json, project, say, say_done, say_failed
from toolkeep.cli.progress import progress
from toolkeep.cli.tables import Column, Table, say_table, short_time
from toolkeep.errors import FileUnreadable, NotRecorded, StoreUnavailable
from toolkeep.host.files import is_there
from toolkeep.text.display import counted

if TYPE_CHECKING:
    from toolkeep.audit.entry import Entry
    from toolkeep.server.api.statistics import StatisticsView
    from toolkeep.storage.log.audit_log import AuditLog
    from toolkeep.storage.log.witness_folder import Witness
    from toolkeep.storage.postgres.remote_log import RemoteLog, RemoteLogs
    from toolkeep.storage.sqlite.bodies_db import Bodies

P = ParamSpec("P")
R = TypeVar("R")


@click.group("audit", cls=CommandGroup)
def command() -> None:
    """Read, verify and export the audit log, and prove single records from it."""


Found: TypeAlias = "tuple[list[Entry], RemoteLog | None]"
"""Records, and the log of another server that they are in."""
_SEARCHED: Final = 5_000
"""Records of each other server that are searched for the newest ones of a tool or an agent."""
_PREFIX: Final = 8
_CALL_SCANS: Final = 40
"""Of 5,000 records each: as many as the charts of the page look back."""
_CALL_COLUMNS: Final = (
    Column("TIME"),
    Column("CALL"),
    Column("OUTCOME"),
    Column("REASON", narrowest=15),
    Column("TOOL", narrowest=18),
    Column("AGENT", narrowest=8),
    Column("TOOK", is_optional=True),
)
"""Shortest prefix of an id; a shorter one could be a mistyped index."""
_STEP_COLUMNS: Final = tuple(map(Column, ("FROM", "OK", "REFUSED", "FAILED", "MEDIAN", "95 OF 100")))
_PERIODS: Final = ("1", "6", "24", "168")
_NAMED_CALLS: Final = 5
"""Calls that an error names."""


def state_of(project: Path | None) -> Path:
    """The state folder of a project; raises if nothing was ever recorded."""
    from toolkeep.keep.open import open_state, project_folder
    from toolkeep.storage.keys import Keys

    state = open_state(project_folder(project))
    # A deleted log must not look like none: the signed key file shows that there was one, and `verify`
    # reports it.
    if state is None or not (is_there(state.folder / "audit") or is_there(Keys(state.folder).signed)):
        hint = "make a call with `toolkeep call`, or name another project with --project DIR"
        raise NotRecorded("this project has no audit log yet", hint)
    return state.folder


@contextlib.contextmanager
def log_of(project: Path | None) -> "Iterator[AuditLog]":
    """Open the audit log of a project."""
    from toolkeep.storage.log.audit_log import AuditLog

    with AuditLog(state_of(project)) as log:
        yield log


@contextlib.contextmanager
def remote_logs_of(project: Path | None, *, is_needed: bool = False) -> "Iterator[RemoteLogs | None]":
    """Open the logs of the other servers of a project; None for a keep that shares no database.

    While the database is away, this server's own log can be read, unless the others are needed.
    """
    from toolkeep.keep.open import open_shared, project_folder

    with contextlib.ExitStack() as stack:
        remote = None
        if shared := open_shared(project_folder(project)):
            stack.enter_context(contextlib.closing(shared))
            try:
                remote = shared.remote_logs
                remote.all()
            except StoreUnavailable as error:
                if is_needed:
                    raise
                remote = None
                say(f"only this server's log: {error.message}", err=True)
        yield remote


@contextlib.contextmanager
def bodies_of(project: Path | None) -> "Iterator[Bodies]":
    """Open the store of kept arguments and results of a project."""
    from toolkeep.storage.sqlite.bodies_db import Bodies

    with contextlib.closing(Bodies(state_of(project))) as bodies:
        yield bodies


def entries_of_call(log: "AuditLog", call_id: str) -> "list[Entry]":
    """The records of a call by its id, correlation id or approval id, or a prefix that no other call has."""
    entries = log.read()
    # The id of the call first: callers choose correlation ids, and one could name another's call.
    for fields in (("call",), ("correlation_id", "id")):
        found = {
            str(entry.record["call"])
            for entry in entries
            if entry.record.get("call")
            and any(_is_meant(str(entry.record.get(field, "")), call_id) for field in fields)
        }
        if len(found) > 1:
            some = ", ".join(sorted(call[:_PREFIX] for call in found)[:_NAMED_CALLS])
            raise NotRecorded(f"{call_id[:64]!r} matches {len(found)} calls", f"name one of them: {some}")
        if found:
            return [entry for entry in entries if entry.record.get("call") in found]
    hint = f"find the id with `toolkeep audit list`; its first {_PREFIX} characters are enough"
    raise NotRecorded(f"the log has no call {call_id[:64]!r}", hint)


def _find_call(log: "AuditLog", remote: "RemoteLogs | None", call_id: str) -> "Found":
    """The records of a call, and the log of another server that they are in; this server's comes first."""
    try:
        return entries_of_call(log, call_id), None
    except NotRecorded:
        calls = remote.calls(call_id, is_prefix=len(call_id) >= _PREFIX) if remote else []
        if not calls:
            raise
    if len(calls) > 1:
        some = ", ".join(sorted(call.call_id[:_PREFIX] for _, call in calls)[:_NAMED_CALLS])
        raise NotRecorded(f"{call_id[:64]!r} matches {len(calls)} calls", f"name one of them: {some}")
    ((found, call),) = calls
    return found.of_call(call), found


def _is_meant(known: str, given: str) -> bool:
    return known == given or (len(given) >= _PREFIX and known.startswith(given))


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
        reason = f"is not a checkpoint: {error.message}; print one with `toolkeep audit checkpoint`"
        raise FileUnreadable(str(path), reason) from error
    return text


def _filters(command: Callable[P, R]) -> Callable[P, R]:
    """Add `--tool` and `--agent`."""
    command = click.option("--agent", help="Only records of this agent's calls.")(command)
    return click.option("--tool", help="Only records of this tool's calls.")(command)


@command.command("list", short_help="List the newest records.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Maximum number."
)
@_filters
@project
@common
def list_records(
    limit: int, tool: str | None, agent: str | None, project: Path | None, *, as_json: bool
) -> None:
    """List the newest records, oldest first. Times are local; with --json they are UTC.

    Where servers share a database, the records of all of them are listed by time, and the server is named.
    """
    with log_of(project) as log, remote_logs_of(project) as remote, progress("Reading the log"):
        entries = log.read()
        rows = list(RecordRows(tool=tool, agent=agent).rows(entries))[-limit:]
        count = len(entries)
        columns: Sequence[Column] = COLUMNS
        if remote is not None:
            others = remote.all()
            named = [(rows, ServerName(remote.server, log.public_key().name))]
            for one in others:
                count += one.size
                newest = _newest(one, max(limit, _SEARCHED))
                found = list(RecordRows(tool=tool, agent=agent).rows(newest))[-limit:]
                named.append((found, ServerName(one.server, one.origin)))
            rows, columns = merge_rows(named)[-limit:], SERVER_COLUMNS
    if as_json:
        print_json(rows)
        return
    say_table(columns, [cells(row) for row in rows])
    say("", f"{len(rows):,} of {counted(count, 'record')}")


def _moment(_: click.Context, __: click.Parameter, given: str | None) -> str | None:
    """A time with its zone."""
    if given is None:
        return None
    try:
        return datetime.fromisoformat(given).astimezone().isoformat()
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(f"{given[:64]!r} is no time such as 2026-05-04T12:00") from error


def _run_time(_: click.Context, __: click.Parameter, given: str | None) -> str | None:
    """Milliseconds, as the page and `/v1` take them."""
    from toolkeep.server.api.recorded_calls import RUN_TIME

    if given is None or re.fullmatch(RUN_TIME, given):
        return given
    raise click.BadParameter(f"{given[:64]!r} is no number of milliseconds with at most three decimals")


@command.command("calls", short_help="List the newest calls that fit filters.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number.")
@click.option(
    "--outcome",
    "status",
    help="ok, error, refused, unknown, unsuccessful (one of these three), pending, repeated or `under way`; "
    "or allow or deny.",
)
@click.option("--session", help="Only calls of this session.")
@click.option("--conversation", help="Only calls of this conversation.")
@click.option("--code", help="Only calls with this error code.")
@click.option("--text", help="Only calls with this text in a name, id or reason.")
@click.option("--hours", type=click.IntRange(1, 99_999), help="Only calls of the last hours.")
@click.option(
    "--since", callback=_moment, help="Only calls from this time on; ISO 8601, local without a zone."
)
@click.option("--until", callback=_moment, help="Only calls before this time.")
@click.option("--slower-ms", type=click.IntRange(0), help="Only calls that took longer.")
@click.option(
    "--ran-ms",
    metavar="MILLISECONDS",
    callback=_run_time,
    help="Only calls whose tool ran longer, such as 0.5.",
)
@click.option("--policy", help="Only calls that this policy decided, or asked about.")
@click.option("--type", help="Only calls with a record of this type, such as Approval.")
@_filters
@project
@common
def list_calls(limit: int, project: Path | None, *, as_json: bool, **filters: str | int | None) -> None:
    """List the newest calls with their outcomes, newest first, by the filters of the page.

    Times are local; with --json they are UTC. Of a long log, the newest 200,000 records are searched.
    """
    import msgspec

    from toolkeep.audit.call_verdict import duration_text
    from toolkeep.cli.tool_selection import keep_with
    from toolkeep.server.api.recorded_calls import CallFilters, CallView
    from toolkeep.server.api.session_timeline import find_calls
    from toolkeep.stores.api_tokens import Scope, Token

    wanted = CallFilters(**{key: None if one is None else str(one) for key, one in filters.items()})
    reader = Token(id="", name="", scopes=(Scope.AUDIT_READ,), agent="operator", created_at=0.0)
    with keep_with(project=project) as keep, progress("Reading the log"):
        found, _ = asyncio.run(
            find_calls(keep, reader, wanted, limit=limit, scans=_CALL_SCANS, tells_why=True)
        )
    calls = [CallView.of(one) for one in found if one.newest.call]
    if as_json:
        print_json(msgspec.to_builtins(calls))
        return
    rows = [
        (
            short_time(datetime.fromisoformat(one.time).timestamp()),
            one.call[:_PREFIX],
            one.outcome,
            one.reason,
            one.tool,
            one.agent,
            duration_text(one.took_us) if one.took_us else "",
        )
        for one in calls
    ]
    say_table(_CALL_COLUMNS, rows)


@command.command("statistics", short_help="Show how many calls failed or were refused, and why.")
@click.option(
    "--hours", type=click.Choice(_PERIODS), default="24", show_default=True, help="How far to look back."
)
@project
@common
def show_statistics(hours: str, project: Path | None, *, as_json: bool) -> None:
    """Show the figures of the page's overview: calls, failures, refusals by reason, and how long tools ran.

    Times are local; with --json they are seconds since 1970. Of a long log, the newest 200,000 records count.
    """
    import msgspec

    from toolkeep.cli.tool_selection import keep_with
    from toolkeep.server.api.statistics import Statistics

    with keep_with(project=project) as keep, progress("Reading the log"):
        view = asyncio.run(Statistics().view(keep, int(hours)))
    if as_json:
        print_json(msgspec.to_builtins(view))
        return
    over = f"{counted(view.calls, 'call')} over the last {counted(view.hours, 'hour')}"
    say(f"{over}, {view.failures:,} failed, {view.refusals:,} refused")
    if view.median_ms is not None and view.slowest_ms is not None:
        say(f"run time: median {view.median_ms:,} ms, p95 {view.slowest_ms:,} ms")
    reasons = [(one.about or one.name, one.name, f"{one.calls:,}") for one in view.by_reason]
    _say_ranking((Column("REFUSED BECAUSE"), Column("CODE"), Column("CALLS")), reasons)
    for heading, ranked in (("TOOL", view.by_tool), ("AGENT", view.by_agent)):
        _say_ranking((Column(heading), Column("CALLS")), [(one.name, f"{one.calls:,}") for one in ranked])
    _say_ranking(_STEP_COLUMNS, list(_steps(view)))
    if not view.is_whole:
        say("", "the log is so long that only its newest part is counted")


def _say_ranking(columns: Sequence[Column], rows: Sequence[tuple[str, ...]]) -> None:
    if rows:
        say("")
        say_table(columns, rows)


def _steps(view: "StatisticsView") -> Iterator[tuple[str, ...]]:
    """The steps in which a call was made."""
    each = zip(view.times, view.ok, view.refused, view.failed, view.p50_ms, view.p95_ms, strict=True)
    for at, ok, refused, failed, p50, p95 in each:
        if ok or refused or failed:
            yield (short_time(at), *(f"{one:,}" for one in (ok, refused, failed)), *map(_ms, (p50, p95)))


def _ms(found: float | None) -> str:
    return "" if found is None else f"{found:,} ms"


def _newest(log: "RemoteLog", limit: int) -> "list[Entry]":
    """The newest records of another server, oldest first; said if copies are not what it signed."""
    from toolkeep.audit.errors import AuditBroken

    try:
        return list(islice(log.read_back(), limit))[::-1]
    except AuditBroken as broken:
        say(f"left out: {broken.message}; run `toolkeep audit verify`", err=True)
        return []


_POLL_SECONDS: Final = 0.5
"""How often a followed log is read: soon enough for a person to watch."""


@command.command("tail", short_help="Print the newest records, then new ones as they come.")
@click.option(
    "--limit",
    type=click.IntRange(0, 1_000),
    default=10,
    show_default=True,
    help="Maximum number of past records to show.",
)
@_filters
@project
@common
def follow_records(
    limit: int, tool: str | None, agent: str | None, project: Path | None, *, as_json: bool
) -> None:
    """Print the newest records, then every new one as it is written, until you press Ctrl-C.

    Times are local; with --json, one JSON object a line, they are UTC.
    """
    chosen = RecordRows(tool=tool, agent=agent)
    with log_of(project) as log, contextlib.suppress(KeyboardInterrupt):
        followed = Followed(log)
        rows = list(chosen.rows(followed.start()))
        rows = rows[len(rows) - min(limit, len(rows)) :]
        table = Table(COLUMNS, [TYPICAL, *map(cells, rows)])
        if not as_json:
            table.say_headings()
        while True:
            for row in rows:
                if as_json:
                    click.echo(json.dumps(row, ensure_ascii=True))
                else:
                    table.say_row(cells(row))
            time.sleep(_POLL_SECONDS)
            rows = list(chosen.rows(followed.added()))


_INDEX_DIGITS: Final = 10
"""Most digits of an index; longer arguments are call ids."""


@command.command("show", short_help="Show a record, or all records of a call.")
@click.argument("which", metavar="INDEX|CALL")
@project
@common
def show_records(which: str, project: Path | None, *, as_json: bool) -> None:
    """Show the record at INDEX, or every record of CALL with its arguments, result and diagnosis.

    CALL is the id of the call, its correlation id, or the id of its approval request; the first eight
    characters are enough. A call may be that of another server on the same database; an INDEX is of this one.
    """
    with log_of(project) as log, remote_logs_of(project) as remote, bodies_of(project) as bodies:
        entries, other = _entries(log, remote, which)

        def body(digest: str) -> bytes:
            return bodies.get(digest) if other is None or remote is None else remote.copies.body(digest)

        data = [_data(entry, body) for entry in entries]
        verdict = _verdict(entries, body)
        data[0] = {**verdict, **data[0]}
        if other is not None:
            data = [{"server": other.server, "origin": other.origin, **one} for one in data]
    if as_json:
        print_json(data)
        return
    for one in data:
        print_json(one)


def _verdict(entries: "list[Entry]", bodies: Callable[[str], bytes]) -> dict[str, str]:
    """Who called what, what came of it and why, and what would change it; nothing for a single record."""
    from toolkeep.audit.call_verdict import verdict_of
    from toolkeep.audit.kept_refusal import read_kept

    records = [entry.record for entry in entries]
    if records[0].get("type") != "ToolInvoked" or (len(records) == 1 and not records[0].get("status")):
        return {}
    verdict = verdict_of(records, read_kept(records, bodies))
    return {"sentence": verdict.sentence} | ({"remedy": verdict.remedy} if verdict.remedy else {})


def _entries(log: "AuditLog", remote: "RemoteLogs | None", which: str) -> "Found":
    if which.isascii() and which.isdecimal() and len(which) <= _INDEX_DIGITS:
        entries = log.read(int(which), int(which) + 1)
        if entries:
            return entries, None
        if len(which) < _PREFIX:
            hint = "list the newest records: toolkeep audit list"
            raise NotRecorded(f"the log has no record {which}", hint)
    return _find_call(log, remote, which)  # one prefix in forty has no letter


def _data(entry: "Entry", bodies: Callable[[str], bytes]) -> dict[str, Any]:
    data = {"index": entry.index, "hash": entry.hash, **entry.record}
    if entry.record.get("has_arguments"):
        data["arguments"] = _body(bodies, entry.record["argument_hash"])
    if entry.record.get("result_hash"):
        data["result"] = _body(bodies, entry.record["result_hash"])
    if entry.record.get("diagnosis_hash"):
        data |= _kept(bodies, entry.record["diagnosis_hash"])
    elif "diagnosis_hash" in entry.record:
        data["diagnosis"] = [DIAGNOSIS_NOT_KEPT]
    return data


def _kept(bodies: Callable[[str], bytes], digest: str) -> dict[str, Any]:
    """What is kept of a refusal or a failure."""
    from toolkeep.audit.kept_refusal import parse_kept

    try:
        kept = parse_kept(bodies(digest))
    except BodyUnavailable as error:
        return {"diagnosis": [REFUSAL_EXPIRED if error.state is BodyState.MISSING else f"({error.message})"]}
    data: dict[str, Any] = {"diagnosis": kept.lines}
    if kept.text:
        data["refusal"] = kept.text.split("\n")
    return data if kept.received is None else {"received": kept.received, **data}


def _body(bodies: Callable[[str], bytes], digest: str) -> Any:
    try:
        return json.loads(bodies(digest))
    except BodyUnavailable as error:
        return f"({error.message})"
    except ValueError:
        return "(bytes)"


@command.command("verify", short_help="Verify the log, or a receipt.")
@click.argument("receipt", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--key", metavar="KEY", help="The public key to verify with; required for a receipt.")
@click.option(
    "--witness",
    "witnesses",
    multiple=True,
    metavar="KEY",
    help="Public key of a witness that must have cosigned the log, or the receipt; repeatable.",
)
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A checkpoint that you kept elsewhere; repeatable.",
)
@click.option(
    "--state",
    "folders",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Verify this state folder instead of the project's; repeatable.",
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
    """Verify the whole log, or a RECEIPT offline, with the public key alone.

    Exit status 0 if nothing is wrong. Only a checkpoint that you kept elsewhere reveals a log that was rolled
    back together with its own checkpoints. Where servers share a database, their logs are verified too.
    """
    if receipt is not None:
        _verify_receipt(receipt, key, witnesses, as_json=as_json)
        return
    from toolkeep.audit.signed_note import VerifierKey
    from toolkeep.storage.log.verify_folder import verify

    outside = {str(path): read_checkpoint(path) for path in checkpoints}
    with progress("Verifying the log"):
        reports = [
            verify(
                folder,
                outside_checkpoints=outside,
                public_key=key,
                witnesses=[VerifierKey.parse(witness) for witness in witnesses],
            )
            for folder in folders or (state_of(project),)
        ]
        with contextlib.nullcontext() if folders else remote_logs_of(project, is_needed=True) as remote:
            reports += remote.verify() if remote else []
    if as_json:
        is_list = folders or remote is not None
        print_json([report.to_dict() for report in reports] if is_list else reports[0].to_dict())
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
        raise click.UsageError("A RECEIPT needs --key: the public key that `toolkeep audit key` prints.")
    text, wanted = read_text(path), [VerifierKey.parse(witness) for witness in witnesses]
    verified = verify_receipt(text, key, witnesses=wanted)
    for witness in wanted:
        if not verify_receipt(text, key, witnesses=[witness]).witnesses:
            raise ReceiptInvalid(f"it is not cosigned by {witness.name}")
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
    help="Prove it against this checkpoint of the log, including its cosignatures.",
)
@project
@common
def print_receipt(call: str, checkpoint: Path | None, project: Path | None, *, as_json: bool) -> None:  # noqa: ARG001 -- a receipt is JSON
    """Print the receipt of a CALL: its outcome, and the proof that it is in the log."""
    from toolkeep.audit.receipt import Receipt

    given = read_checkpoint(checkpoint) if checkpoint else None
    with log_of(project) as log, remote_logs_of(project) as remote:
        entries, other = _find_call(log, None if given else remote, call)
        index = entries[-1].index
        receipt = other.receipt(index) if other else Receipt.of(entries[-1], log.prove(index, given))
    print_json(receipt.to_dict())


@command.command("checkpoint", short_help="Print a signed checkpoint to keep elsewhere.")
@project
@common
def print_checkpoint(project: Path | None, *, as_json: bool) -> None:
    """Print a signed checkpoint over all records so far. Keep it on another machine."""
    with log_of(project) as log:
        note = log.checkpoint()
    if as_json:
        print_json({"checkpoint": note})
    else:
        click.echo(note, nl=False)


@command.command("export", short_help="Print the records with everything needed to verify them.")
@click.option(
    "--from", "start", type=click.IntRange(0), default=0, help="Index of the first record, in each log."
)
@project
@common
def export_log(start: int, project: Path | None, *, as_json: bool) -> None:  # noqa: ARG001 -- always JSON
    """Print JSON Lines: the key and checkpoint first, then one line for each record.

    Where servers share a database, the logs of the others follow in the same form.
    """
    with log_of(project) as log, remote_logs_of(project) as remote:
        head = {"key": str(log.public_key()), "checkpoint": log.checkpoint()}
        click.echo(json.dumps(head, ensure_ascii=False))
        for entry in log.read(start):
            click.echo(entry.line.decode())
        for other in remote.all() if remote else ():
            said = other.published
            head = {"key": said.key, "checkpoint": said.copied, "server": said.name}
            click.echo(json.dumps(head, ensure_ascii=False))
            for entry in other.read(start):
                click.echo(entry.line.decode())


@command.command("key", short_help="Print the public key of the log.")
@project
@common
def print_key(project: Path | None, *, as_json: bool) -> None:
    """Print the public key that verifies receipts and checkpoints."""
    with log_of(project) as log:
        key = str(log.public_key())
    if as_json:
        print_json({"key": key})
    else:
        say(key)


@command.command("rotate-key", short_help="Rotate the signing key.")
@project
@common
def rotate_key(project: Path | None, *, as_json: bool) -> None:
    """Rotate the signing key. The log records the new key, signed with the old one."""
    with log_of(project) as log:
        key = str(log.rotate_key())
    if as_json:
        print_json({"key": key})
    else:
        say_done(f"the log is now signed with {key}")


@command.command("replay", short_help="Run a recorded call again and compare.")
@click.argument("call")
@files
@project
@common
def replay_call(call: str, files: tuple[Path, ...], project: Path | None, *, as_json: bool) -> None:
    """Run the recorded CALL again and compare the results by hash.

    Only pure and deterministic tools can be replayed. Exit status 0 if the results are equal.
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
        say_done(f"{again.tool} returned the same result")
    else:
        why = "" if again.ok else f": {again.text}"
        say_failed(f"{again.tool} did not return the same result{why}")
        say(f"  recorded {replayed.recorded_hash}", f"  now      {again.hash or '(none)'}")
    if not replayed.is_same:
        sys.exit(1)


_DAY_SECONDS = 86_400  # a unit, no bound


@command.command("erase", short_help="Erase stored arguments and results; the log stays verifiable.")
@click.argument("call", required=False)
@click.option(
    "--older-than", "days", type=click.FloatRange(0), metavar="DAYS", help="Erase everything older than this."
)
@project
@common
def erase_bodies(call: str | None, days: float | None, project: Path | None, *, as_json: bool) -> None:
    """Erase the stored arguments and result of a CALL, or all that are older than some days.

    The log keeps their hashes, so every proof stays valid. A body that several calls share is erased for all.
    Where servers share a database, each of them erases it, within seconds or when it runs again.
    """
    if (call is None) == (days is None):
        raise click.UsageError("Give a CALL or --older-than DAYS, not both.")
    with bodies_of(project) as bodies, remote_logs_of(project, is_needed=True) as remote:
        if days is not None:
            erased = set(bodies.erase_older(time.time() - days * _DAY_SECONDS))
            copied = erased | set(remote.copies.older_than(days * _DAY_SECONDS) if remote else ())
        else:
            copied = _digests(project, remote, call or "")
            erased = {digest for digest in copied if bodies.erase(digest)}
        if remote is not None:
            erased |= set(remote.copies.erase(copied))
    if as_json:
        print_json({"erased": sorted(erased)})
    else:
        say_done(f"erased {counted(len(erased), 'body', 'bodies')}")


_HASHES: Final = ("argument_hash", "result_hash", "diagnosis_hash")


def _digests(project: Path | None, remote: "RemoteLogs | None", call: str) -> set[str]:
    """Hashes of the stored bodies of a call."""
    with log_of(project) as log:
        records = [entry.record for entry in _find_call(log, remote, call)[0]]
    return {r[field] for r in records for field in _HASHES if r.get(field)}


@command.command("witness", short_help="Run a witness that cosigns checkpoints.")
@click.argument("folder", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--name", default="toolkeep-witness", show_default=True, help="Name of a new witness in FOLDER."
)
@click.option(
    "--trust", "keys", multiple=True, metavar="KEY", help="Cosign the log with this key; repeatable."
)
@click.option(
    "--requests",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Folder of requests to answer.",
)
@click.option("--serve", "listens", metavar="HOST:PORT", help="Answer requests over HTTP, until Ctrl-C.")
@project
@common
def run_witness(
    folder: Path | None,
    name: str,
    keys: tuple[str, ...],
    requests: Path | None,
    listens: str | None,
    project: Path | None,
    *,
    as_json: bool,
) -> None:
    """Run a witness with its state in FOLDER, which the owner of the log must not be able to write.

    Without FOLDER it is the project's own, with which `toolkeep serve` cosigns the logs of other servers.
    """
    from toolkeep.storage.log.witness_folder import Answered, Witness

    witness = Witness(folder, name=name) if folder else _own_witness(project)
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
    else:
        say(f"witness key: {witness.public_key}")
    if requests and not as_json:
        why = f", {answered.refused} refused: see the .refused files" if answered.refused else ""
        say(f"{counted(sum(answered), 'request')} answered{why}")
    if not witness.knows_a_log and not as_json:
        say("  It cosigns no log yet. Add one: --trust KEY, as printed by `toolkeep audit key`.", err=True)
    if listens:
        _serve_witness(witness, listens)


def _own_witness(project: Path | None) -> "Witness":
    from toolkeep.keep.open import open_witness, project_folder

    witness = open_witness(project_folder(project))
    if witness is None:
        raise click.UsageError("There is no state folder for a witness. Name a FOLDER.")
    return witness


def _serve_witness(witness: "Witness", listens: str) -> None:
    from toolkeep.cli.listen_options import address, alarms_shown, listen
    from toolkeep.server.witness_app import serve_witness

    host, colon, port = listens.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise click.UsageError("--serve takes HOST:PORT, such as 127.0.0.1:8766.")
    with listen(host.strip("[]"), int(port), option="--serve") as sock, alarms_shown():
        url = f"http://{address(host.strip('[]'), sock.getsockname()[1])}/add-checkpoint"
        serve_witness(witness, sock, lambda: say_done(f"cosigning at {url}", err=True))
