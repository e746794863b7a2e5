"""The log over HTTP: records newest first, one record, its receipt, checkpoint and key.

With the scope `audit:read` every record is seen; without it, an agent sees the records of its own calls. A
record that does not name its agent belongs to the call that it names; where that cannot be found, nobody but
an auditor sees it. Reading is done in threads, and a page looks at a bounded number of records.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Any, Literal

import msgspec

from toolkeep.audit.entry import Entry
from toolkeep.audit.errors import BodyUnavailable
from toolkeep.errors import Code, NotRecorded
from toolkeep.keep import Keep
from toolkeep.limits import SCANNED_RECORDS
from toolkeep.records import KeepRecord
from toolkeep.server.auth import Caller
from toolkeep.server.pagination import Page, decode_cursor, encode_cursor
from toolkeep.server.problems import RequestRefused, nothing_there
from toolkeep.storage.record import FileRecord
from toolkeep.tokens import Scope


class RecordSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A record in a list."""

    index: int
    time: str
    type: str
    call: str
    tool: str
    agent: str
    status: str
    decision: str = ""
    """What policy said: `allow` or `deny`, where the record tells it."""
    codes: list[str]


class RecordPage(Page, frozen=True, kw_only=True):
    """Some of the records."""

    items: list[RecordSummary]


class RecordView(msgspec.Struct, frozen=True, kw_only=True):
    """One record whole, as the log holds it."""

    index: int
    hash: str
    previous: str
    record: dict[str, Any]


class CallRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the log has of one call; bodies where they are kept."""

    call: str
    records: list[RecordView]
    arguments: Any = None
    no_arguments: "NoArguments | None" = None
    """Why there are no arguments."""
    result: Any = None


NoArguments = Literal["refused", "repeated", "secret", "too_large", "erased", "missing", "changed", "unknown"]
"""`refused`: the call was refused before its arguments were known to be valid. `repeated`: they are those of
the call whose result was given back. `missing`: the process ended before they were written."""


class CheckpointView(msgspec.Struct, frozen=True, kw_only=True):
    """A signed checkpoint over everything recorded so far."""

    checkpoint: str


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """The public key that receipts and checkpoints are checked with."""

    key: str


class RecordFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are wanted."""

    agent: str | None = None
    tool: str | None = None
    type: str | None = None
    status: str | None = None

    def fits(self, summary: RecordSummary) -> bool:
        """Whether a record is one of them."""
        return (
            self.agent in (None, summary.agent)
            and self.tool in (None, summary.tool)
            and self.type in (None, summary.type)
            # A denied call ends with its decision, whose status is `error` then.
            and self.status in (None, summary.status, summary.decision)
        )

    def fits_call(self, call: "CallSummary") -> bool:
        """Whether a call is one of them: by how it ended, and by all that happened to it."""
        return (
            self.agent in (None, call.newest.agent)
            and self.tool in (None, call.newest.tool)
            and self.type in (None, *call.types)
            and self.status in (None, call.outcome, *(one.decision for one in call.records))
        )


class CallSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A call in a list: all of its records, the newest first; or one record of the log about itself."""

    records: list[RecordSummary]

    @property
    def newest(self) -> RecordSummary:
        """Where the call stands."""
        return self.records[0]

    @property
    def types(self) -> set[str]:
        """What happened to it."""
        return {one.type for one in self.records}

    @property
    def outcome(self) -> str:
        """How it ended, or how far it came."""
        status = self.newest.status
        return status if status in ("ok", "error", "pending") else "under way"


async def list_records(
    keep: Keep, caller: Caller, filters: RecordFilters, *, limit: int, cursor: str | None = None
) -> Page:
    """The newest records that a caller may see; a page may be short, and goes on while `next` is there."""
    stop = decode_cursor(cursor, int) if cursor else None
    return await asyncio.to_thread(_page, keep.record, caller, filters, limit, stop)


def _page(record: KeepRecord, caller: Caller, filters: RecordFilters, limit: int, stop: int | None) -> Page:
    entries = list(islice(record.log.read_back(stop), SCANNED_RECORDS))
    owners = _owners(record, entries)
    own = None if caller.has_scope(Scope.AUDIT_READ) else caller.agent
    shown: list[RecordSummary] = []
    for entry in entries:
        summary = _summary(entry, owners)
        if (own is None or summary.agent == own) and filters.fits(summary):
            shown.append(summary)
            if len(shown) == limit:
                return Page(items=shown, next=encode_cursor(entry.index) if entry.index else None)
    last = entries[-1].index if entries else 0
    return Page(items=shown, next=encode_cursor(last) if last else None)


async def list_calls(
    keep: Keep, caller: Caller, filters: RecordFilters, *, limit: int, cursor: str | None = None
) -> Page:
    """The newest calls that a caller may see, each with all of its records; where they stand, filtered."""
    stop = decode_cursor(cursor, int) if cursor else None
    return await asyncio.to_thread(_call_page, keep.record, caller, filters, limit, stop)


def _call_page(
    record: KeepRecord, caller: Caller, filters: RecordFilters, limit: int, stop: int | None
) -> Page:
    entries = list(islice(record.log.read_back(stop), SCANNED_RECORDS))
    owners = _owners(record, entries)
    own = None if caller.has_scope(Scope.AUDIT_READ) else caller.agent
    grouped: dict[str, CallSummary] = {}
    for entry in entries:
        one = _summary(entry, owners)
        if own in (None, one.agent):
            grouped.setdefault(one.call or str(one.index), CallSummary(records=[])).records.append(one)
    _complete(record, grouped, entries, owners)
    earlier = _calls_from(record, stop) if stop else set()
    shown: list[CallSummary] = []
    for call in grouped.values():
        # What began before this page and ended on an earlier one was shown there, whole.
        if call.newest.call not in earlier and filters.fits_call(call):
            shown.append(call)
            if len(shown) == limit:
                break
    last = shown[-1].newest.index if len(shown) == limit else entries[-1].index if entries else 0
    return Page(items=shown, next=encode_cursor(last) if last else None)


def _complete(
    record: KeepRecord,
    grouped: dict[str, CallSummary],
    entries: list[Entry],
    owners: dict[str, tuple[str, str]],
) -> None:
    """Add what lies further back of calls that began there."""
    cut = {key for key, call in grouped.items() if call.newest.call and "ToolInvoked" not in call.types}
    if not cut:
        return
    for entry in islice(record.log.read_back(entries[-1].index), SCANNED_RECORDS):
        call = str(entry.record.get("call", ""))
        if call in cut:
            grouped[call].records.append(_summary(entry, owners))
            if entry.record.get("type") == "ToolInvoked":
                cut.discard(call)
                if not cut:
                    return


def _calls_from(record: KeepRecord, start: int) -> set[str]:
    """The calls that have records from an index on, as far as a page goes."""
    later = record.log.read_back(start + SCANNED_RECORDS)
    found = takewhile(lambda entry: entry.index >= start, later)
    return {call for entry in found if (call := str(entry.record.get("call", "")))}


def _owners(record: KeepRecord, entries: list[Entry]) -> dict[str, tuple[str, str]]:
    """Agent and tool of the calls that entries are about."""
    owners = dict(_named(entries))
    missing = {str(call) for entry in entries if (call := entry.record.get("call"))} - owners.keys()
    if missing and entries:
        for call, owner in _named(islice(record.log.read_back(entries[-1].index), SCANNED_RECORDS)):
            owners.setdefault(call, owner)
            missing.discard(call)
            if not missing:
                break
    return owners


def _named(entries: "Iterator[Entry] | list[Entry]") -> Iterator[tuple[str, tuple[str, str]]]:
    for entry in entries:
        said = entry.record
        if said.get("agent") and said.get("call"):
            yield str(said["call"]), (str(said["agent"]), str(said.get("tool", "")))


def _summary(entry: Entry, owners: dict[str, tuple[str, str]]) -> RecordSummary:
    said = entry.record
    call = str(said.get("call", ""))
    agent, tool = owners.get(call, ("", ""))
    decision = said.get("decision") or ""
    decision = str(decision.get("decision", "")) if isinstance(decision, dict) else str(decision)
    return RecordSummary(
        index=entry.index,
        time=str(said.get("time", "")),
        type=str(said.get("type") or said.get("event") or ""),
        call=call,
        tool=tool,
        agent=agent,
        status=str(said.get("status") or decision or said.get("outcome") or ""),
        decision=decision,
        codes=[str(code) for code in said.get("codes", ())],
    )


async def show_record(keep: Keep, caller: Caller, index: int) -> RecordView:
    """One record."""
    return _view(await asyncio.to_thread(_entry, keep.record, caller, index))


def _view(entry: Entry) -> RecordView:
    return RecordView(index=entry.index, hash=entry.hash, previous=entry.previous, record=entry.record)


def _entry(record: KeepRecord, caller: Caller, index: int) -> Entry:
    """The entry, if the caller may see it; raises as if it were not there."""
    entry = next(record.log.read_back(index + 1), None)
    if entry is None or entry.index != index:
        raise nothing_there("record")
    if not caller.has_scope(Scope.AUDIT_READ):
        owner = _owners(record, [entry]).get(str(entry.record.get("call", "")))
        if owner is None or owner[0] != caller.agent:
            raise nothing_there("record")
    return entry


async def receipt(keep: Keep, caller: Caller, index: int) -> dict[str, Any]:
    """The proof that a record is in the log, checkable offline with the public key alone."""

    def prove() -> dict[str, Any]:
        _entry(keep.record, caller, index)
        return keep.record.receipt(index).to_dict()

    return await asyncio.to_thread(prove)


async def call_records(keep: Keep, caller: Caller, call_id: str) -> CallRecords:
    """Everything that the log has of one call."""
    return await asyncio.to_thread(_call_records, keep, caller, call_id)


def _call_records(keep: Keep, caller: Caller, call_id: str) -> CallRecords:
    record = keep.record
    entries = list(_entries_of(record, call_id))
    owner = dict(_named(entries)).get(call_id, ("", ""))[0]
    if not entries or not (caller.has_scope(Scope.AUDIT_READ) or owner == caller.agent):
        raise nothing_there("call")
    said = [entry.record for entry in entries]
    arguments, why = _arguments(keep, said)
    result = next((str(one["result_hash"]) for one in said if one.get("result_hash")), "")
    return CallRecords(
        call=call_id,
        records=[_view(entry) for entry in entries],
        arguments=arguments,
        no_arguments=why,
        result=_body(record, result),
    )


def _arguments(keep: Keep, said: list[dict[str, Any]]) -> "tuple[Any, NoArguments | None]":
    """The arguments of a call, or why there are none."""
    if kept := next((str(one["argument_hash"]) for one in said if one.get("has_arguments")), ""):
        try:
            return json.loads(keep.record.bodies.get(kept)), None
        except BodyUnavailable as error:
            return None, error.state.value
        except (KeyError, ValueError):
            return None, "missing"
    return None, _why_not_kept(keep, said[0])


def _why_not_kept(keep: Keep, invoked: dict[str, Any]) -> "NoArguments":
    if invoked.get("repeats"):
        return "repeated"
    if invoked.get("has_arguments") is None:
        return "refused"
    tool = keep.try_get(f"{invoked.get('tool')}@{invoked.get('version')}")
    if tool is None or tool.definition_hash != invoked.get("definition_hash"):
        return "unknown"  # the tool of then is gone, and only it would say whether it has secrets
    return "secret" if tool.arguments.secrecy.has_secrets else "too_large"


def _entries_of(record: KeepRecord, call_id: str) -> list[Entry]:
    """The entries of a call, in order, as far back as a few pages go."""
    found: list[Entry] = []
    for entry in islice(record.log.read_back(), 4 * SCANNED_RECORDS):
        if entry.record.get("call") == call_id:
            found.append(entry)
            if entry.record.get("type") == "ToolInvoked":
                break
    return found[::-1]


def _body(record: KeepRecord, digest: str) -> Any:
    if not digest:
        return None
    with contextlib.suppress(BodyUnavailable, KeyError, ValueError):
        return json.loads(record.bodies.get(digest))
    return None


async def checkpoint(keep: Keep) -> CheckpointView:
    """A signed checkpoint over everything recorded so far."""
    return CheckpointView(checkpoint=await asyncio.to_thread(_files(keep).log.checkpoint))


async def public_key(keep: Keep) -> KeyView:
    """The key of the log."""
    return KeyView(key=str(await asyncio.to_thread(_files(keep).log.public_key)))


_verifying = threading.Lock()


async def verify_log(keep: Keep) -> dict[str, Any]:
    """Whether the log is what it was; one at a time, for it reads everything."""
    from toolkeep.storage.verify import verify

    files = _files(keep)
    if not _verifying.acquire(blocking=False):
        raise RequestRefused(Code.NOT_SERVING, "somebody else verifies the log now", hint="try again soon")
    try:
        report = await asyncio.to_thread(verify, files.log)
    finally:
        _verifying.release()
    data: dict[str, Any] = {**report.to_dict(), "log": "the keep's own"}
    return data


def _files(keep: Keep) -> FileRecord:
    record = keep.record
    if not isinstance(record, FileRecord):
        raise NotRecorded("the log is only in memory; open the keep with a state folder")
    return record
