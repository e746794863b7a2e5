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
from itertools import islice
from typing import Any

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
    result: Any = None


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
        wanted = (self.agent, self.tool, self.type, self.status)
        there = (summary.agent, summary.tool, summary.type, summary.status)
        return all(one is None or one == found for one, found in zip(wanted, there, strict=True))


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
    status = said.get("status") or said.get("decision") or said.get("outcome") or ""
    return RecordSummary(
        index=entry.index,
        time=str(said.get("time", "")),
        type=str(said.get("type") or said.get("event") or ""),
        call=call,
        tool=tool,
        agent=agent,
        status=status if isinstance(status, str) else str(status.get("decision", "")),
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
    return await asyncio.to_thread(_call_records, keep.record, caller, call_id)


def _call_records(record: KeepRecord, caller: Caller, call_id: str) -> CallRecords:
    entries = list(_entries_of(record, call_id))
    owner = dict(_named(entries)).get(call_id, ("", ""))[0]
    if not entries or not (caller.has_scope(Scope.AUDIT_READ) or owner == caller.agent):
        raise nothing_there("call")
    said = [entry.record for entry in entries]
    kept = next((str(one["argument_hash"]) for one in said if one.get("has_arguments")), "")
    result = next((str(one["result_hash"]) for one in said if one.get("result_hash")), "")
    return CallRecords(
        call=call_id,
        records=[_view(entry) for entry in entries],
        arguments=_body(record, kept),
        result=_body(record, result),
    )


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
