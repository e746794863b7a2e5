"""The audit log over HTTP: records newest first, single records, receipts, checkpoint and key.

The scope `audit:read` shows every record; without it, an agent sees the records of its own calls. A record
without an agent belongs to the call that it names; if that call cannot be found, only an auditor sees it.
Reading runs in threads, and a page scans a limited number of records.
"""

import asyncio
import contextlib
import heapq
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, islice, takewhile
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from toolkeep.audit.call_verdict import Outcome, verdict_of
from toolkeep.audit.entry import Entry
from toolkeep.audit.errors import (
    DIAGNOSIS_NOT_KEPT,
    REFUSAL_EXPIRED,
    AuditBroken,
    BodyState,
    BodyUnavailable,
)
from toolkeep.audit.kept_refusal import KeptProblem, KeptRefusal, ReadBody, read_kept
from toolkeep.audit.receipt import Receipt
from toolkeep.audit.record_kinds import STAGES
from toolkeep.errors import Code, NotRecorded, StoreUnavailable
from toolkeep.json_values.pointers import look_up
from toolkeep.keep.keep import Keep
from toolkeep.limits import PAGE_MOST, SCANNED_RECORDS
from toolkeep.server.api.call_index import CallIndex
from toolkeep.server.api.common_parameters import CURSOR, ID, LIMIT
from toolkeep.server.api.pagination import Page, decode_cursor, encode_cursor
from toolkeep.server.api.recorded_calls import (
    RUN_TIME,
    UNSUCCESSFUL,
    CallFilters,
    CallSummary,
    CallView,
    RecordFilters,
    RecordSummary,
    call_of,
    milliseconds,
    named,
    summary_of,
)
from toolkeep.server.api.session_routes import note_shown
from toolkeep.server.api.statistics import PERIODS, StatisticsView
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import RequestRefused, not_found
from toolkeep.server.http.request import Parameter, Request
from toolkeep.server.http.responses import Response, json_response
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.storage.log.file_records import FileRecord
from toolkeep.stores.api_tokens import Scope
from toolkeep.stores.records import KeepRecord, ReadableLog
from toolkeep.text.display import shorten

if TYPE_CHECKING:
    from toolkeep.storage.postgres.remote_log import RemoteLogs

logger = logging.getLogger("toolkeep.audit")

_VALUE_CHARS: Final = 200
"""Characters of a value beside its problem; the arguments stand whole elsewhere."""
_READ_ARGUMENT: Final = re.compile(r'context\.arguments(?:\.(\w+)|\["([^"\\]+)"\]|\s+has\s+"?(\w+))')
"""How the text of a policy names an argument."""


class RecordPage(Page, frozen=True, kw_only=True):
    """Some of the records."""

    items: list[RecordSummary]


class RecordView(msgspec.Struct, frozen=True, kw_only=True):
    """One record whole, as the log holds it."""

    index: int
    hash: str
    previous: str
    record: dict[str, Any]


class StageTime(msgspec.Struct, frozen=True, kw_only=True):
    """How long a stage of a call took."""

    stage: str
    began_us: int
    """Since the call began."""
    took_us: int


class DenyingPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy that denied a call, and what it read of the arguments."""

    policy: str
    text: str
    """As it is in force now; empty if it is not, or the caller may not read policies."""
    reads: dict[str, Any]
    """The arguments that its text names, as they were sent."""
    is_unchanged: bool
    """Whether the policies in force are those that decided."""
    place: str = ""
    """Where it is, as `text`: file, line and column."""
    stored_in: str = ""
    """The name of the policies of the state that it is one of; empty if it is in a file."""


class CallRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the log has of one call; bodies where they are kept."""

    call: str
    outcome: Outcome
    sentence: str
    """Who called what, what came of it, and why."""
    remedy: str = ""
    """What would change it; only for callers with `audit:read`."""
    records: list[RecordView]
    stages: list[StageTime] = []
    """The stages that it passed, with their times."""
    arguments: Any = None
    is_whole: bool = True
    """Whether the arguments are exactly those that were sent; what may be secret is described only."""
    no_arguments: "NoArguments | None" = None
    """Why there are no arguments."""
    result: Any = None
    refusal: str = ""
    """What the model was told, if the call was refused or failed."""
    problems: list[KeptProblem] = []
    """What was wrong with it."""
    denied_by: list[DenyingPolicy] = []
    """The policies that denied it."""
    diagnosis: str = ""
    """Why the call failed, or why that is not known; only for callers with `audit:read`."""
    server: str = ""
    """The other server whose log it is in; empty if it is this one's."""
    origin: str = ""
    """The name of that log, where servers share a database."""


NoArguments = Literal[
    "refused",
    "unreadable",
    "repeated",
    "secret",
    "too_large",
    "erased",
    "expired",
    "missing",
    "changed",
    "unknown",
]
"""`refused`: an earlier version kept no arguments that were not valid. `unreadable`: there were none, or they
could not be read. `repeated`: they are those of the call
whose result was given back. `expired`: those of refused calls are kept for a while. `missing`: the process
ended before they were written."""


class CheckpointView(msgspec.Struct, frozen=True, kw_only=True):
    """A signed checkpoint over everything recorded so far."""

    checkpoint: str


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """The public key that receipts and checkpoints are checked with."""

    key: str


async def list_records(
    keep: Keep, caller: Caller, filters: RecordFilters, *, limit: int, cursor: str | None = None
) -> Page:
    """The newest records that a caller may see; a page may be short, and continues while `next` is set."""
    find = partial(_page, caller=caller, filters=filters, limit=limit)
    return await asyncio.to_thread(_merged, keep, find, limit, cursor)


def _page(
    held: "_ServerLog", stop: int | None, *, caller: Caller, filters: RecordFilters, limit: int
) -> "tuple[list[RecordSummary], int]":
    """The newest records before an index, and the index to go on before; 0 at the end."""
    log = held.log
    entries = list(islice(log.read_back(stop), SCANNED_RECORDS))
    owners = _owners(log, entries)
    own = _seen_agent(caller)
    shown: list[RecordSummary] = []
    for entry in entries:
        summary = summary_of(entry, owners)
        if (own is None or summary.agent == own) and filters.fits(summary):
            shown.append(summary)
            if len(shown) == limit:
                return shown, entry.index
    return shown, entries[-1].index if entries else 0


def _merged(keep: Keep, find: "Find", limit: int, cursor: str | None) -> Page:
    """The newest of all logs, by time; the cursor says where each of them goes on."""
    logs = _logs(keep)
    if len(logs) == 1 and not logs[0].origin:
        items, stop = find(logs[0], decode_cursor(cursor, int) if cursor else None)
        return Page(items=list(items), next=encode_cursor(stop) if stop else None)
    stops = decode_cursor(cursor, dict[str, int]) if cursor else {}
    found: list[list[tuple[RecordSummary | CallSummary, str]]] = []
    for one in logs:
        if stops.get(one.origin, 1):
            try:
                items, stop = find(one, stops.get(one.origin))
            except AuditBroken as broken:
                _warn_of_missing(broken)  # the other logs are shown
                items, stop = [], 0
            found.append([(one.names(item), one.origin) for item in items])
            stops[one.origin] = stop
    ordered = list(heapq.merge(*found, key=lambda pair: pair[0].newest.time, reverse=True))
    # Those that did not fit come first on the next page.
    for item, origin in reversed(ordered[limit:]):
        stops[origin] = item.newest.index + 1
    following = encode_cursor(stops) if any(stops.values()) else None
    return Page(items=[item for item, _ in ordered[:limit]], next=following)


class _ServerLog(NamedTuple):
    """A log that is shown, and where it is; the names are empty for a keep that shares none."""

    log: ReadableLog
    bodies: ReadBody
    """Those that the log names by their hashes."""
    server: str = ""
    origin: str = ""

    def names(self, item: "RecordSummary | CallSummary") -> "RecordSummary | CallSummary":
        if isinstance(item, RecordSummary):
            return msgspec.structs.replace(item, server=self.server, origin=self.origin)
        records = [
            msgspec.structs.replace(one, server=self.server, origin=self.origin) for one in item.records
        ]
        return msgspec.structs.replace(item, records=records)


Find: TypeAlias = "Callable[[_ServerLog, int | None], tuple[Sequence[RecordSummary | CallSummary], int]]"


def _logs(keep: Keep) -> list[_ServerLog]:
    """The log of this server first, then those of the others on its database."""
    record = keep.record
    if keep.shared is None or not isinstance(record, FileRecord):
        return [_ServerLog(record.log, record.bodies.get)]
    remote, others = keep.shared.remote_logs, []
    try:
        others = [_ServerLog(one, remote.copies.body, one.server, one.origin) for one in remote.all()]
    except StoreUnavailable as error:
        logger.warning("the logs of other servers cannot be read", extra={"reason": error.message})
    own = _ServerLog(record.log, record.bodies.get, remote.server, record.log.public_key().name)
    return [own, *others]


class CallPage(Page, frozen=True, kw_only=True):
    """Some of the calls."""

    items: list[CallView]
    total: int | None = None
    """How many fit on all pages, where that is known."""


EXPORTED: Final = 10_000
"""Maximum number of calls in one export; more are read with `toolkeep audit export`."""


async def export_calls(service: Service, caller: Caller, filters: CallFilters) -> list[CallView]:
    """The newest calls that fit, page after page."""
    found: list[CallView] = []
    cursor: str | None = None
    while len(found) < EXPORTED:
        page = await list_calls(
            service.keep,
            caller,
            filters,
            limit=PAGE_MOST,
            cursor=cursor,
            index=service.index,
            tells_why=True,
        )
        found += [CallView.of(one) for one in page.items if one.newest.call]
        cursor = page.next
        if cursor is None:
            break
    return found[:EXPORTED]


def call_filters(query: Mapping[str, Any]) -> CallFilters:
    """The filters of a query; empty ones are none."""
    for name in ("since", "until"):
        if query[name] and not milliseconds(query[name]):
            message = f"{name} is not a time"
            raise RequestRefused(Code.REQUEST_INVALID, message, hint="write 2026-11-15T13:00:00Z")
    return CallFilters(**{name: query[name] or None for name in CallFilters.__struct_fields__})


async def list_calls(
    keep: Keep,
    caller: Caller,
    filters: CallFilters,
    *,
    limit: int,
    cursor: str | None = None,
    index: CallIndex | None = None,
    tells_why: bool = False,
) -> Page:
    """The newest calls that a caller may see, with all of their records, filtered.

    `tells_why` adds why they were refused or failed, and searches it, for callers with `audit:read`.
    """
    find = partial(
        _call_page,
        caller=caller,
        filters=filters,
        limit=limit,
        index=index,
        tells_why=tells_why and caller.has_scope(Scope.AUDIT_READ),
    )

    def listed() -> Page:
        page = _merged(keep, find, limit, cursor)
        _note_reasons(keep, caller, page.items)
        return page

    return await asyncio.to_thread(listed)


def _note_reasons(keep: Keep, caller: Caller, calls: Sequence[CallSummary]) -> None:
    """A reason may quote what another session was shown."""
    for tool in {one.newest.tool for one in calls if one.is_told}:
        note_shown(keep, caller, tool)


async def latest_unsuccessful(
    service: Service, caller: Caller, *, hours: int, limit: int
) -> list[CallSummary]:
    """The newest calls of this server's log that were refused or failed, with their reasons."""
    record = service.keep.record
    find = partial(
        _call_page,
        _ServerLog(record.log, record.bodies.get),
        None,
        caller=caller,
        filters=CallFilters(status=UNSUCCESSFUL, hours=str(hours)),
        limit=limit,
        index=service.index,
        tells_why=caller.has_scope(Scope.AUDIT_READ),
    )
    found, _ = await asyncio.to_thread(find)
    _note_reasons(service.keep, caller, found)
    return found


async def count_calls(
    service: Service, caller: Caller, filters: CallFilters, first: Page, cursor: str | None
) -> int | None:
    """How many calls fit, beside the page that was found; None if that is not known."""
    if cursor is None and first.next is None:
        return sum(bool(one.newest.call) for one in first.items)
    keep, agent = service.keep, _seen_agent(caller)
    if keep.shared is not None:
        return None
    return await asyncio.to_thread(
        service.index.count, keep.record.log, filters, agent=agent, tells_why=agent is None
    )


def _seen_agent(caller: Caller) -> str | None:
    """The agent whose calls a caller may see; None for all."""
    return None if caller.has_scope(Scope.AUDIT_READ) else caller.agent


def _call_page(
    held: _ServerLog,
    stop: int | None,
    *,
    caller: Caller,
    filters: CallFilters,
    limit: int,
    index: CallIndex | None,
    tells_why: bool,
) -> tuple[list[CallSummary], int]:
    """The newest calls before an index, and the index to go on before; 0 at the end."""
    log, own = held.log, _seen_agent(caller)
    if index is not None:
        found = index.find(log, filters, agent=own, stop=stop, limit=limit, tells_why=tells_why)
        if found is not None:
            return found
    entries = list(islice(log.read_back(stop), SCANNED_RECORDS))
    owners = _owners(log, entries)
    grouped: dict[str, list[Entry]] = {}
    for entry in entries:
        name = str(entry.record.get("call", ""))
        if own is None or owners.get(name, ("", ""))[0] == own:
            grouped.setdefault(name or str(entry.index), []).append(entry)
    _complete(log, grouped, entries)
    earlier = _calls_from(log, stop) if stop else set()
    shown: list[CallSummary] = []
    begin_ms = filters.begin_ms()
    for whole in grouped.values():
        call = call_of(whole, owners, held.bodies if tells_why else None)
        if call.began_ms < begin_ms:
            continue
        # A call that ended on an earlier page was shown there with all of its records.
        if call.newest.call not in earlier and filters.fits_call(call):
            shown.append(call)
            if len(shown) == limit:
                return shown, call.newest.index
    is_over = not entries or milliseconds(str(entries[-1].record.get("time", ""))) < begin_ms
    return shown, 0 if is_over else entries[-1].index


def _complete(
    log: ReadableLog,
    grouped: dict[str, list[Entry]],
    entries: list[Entry],
) -> None:
    """Add older records of calls that began before the page."""
    cut = {
        str(held[0].record["call"])
        for held in grouped.values()
        if held[0].record.get("call") and all(one.record.get("type") != "ToolInvoked" for one in held)
    }
    if not cut:
        return
    for entry in islice(log.read_back(entries[-1].index), SCANNED_RECORDS):
        call = str(entry.record.get("call", ""))
        if call in cut:
            grouped[call].append(entry)
            if entry.record.get("type") == "ToolInvoked":
                cut.discard(call)
                if not cut:
                    return


def _calls_from(log: ReadableLog, start: int) -> set[str]:
    """The calls that have records from an index on, up to a page."""
    later = log.read_back(start + SCANNED_RECORDS)
    found = takewhile(lambda entry: entry.index >= start, later)
    return {call for entry in found if (call := str(entry.record.get("call", "")))}


def _owners(log: ReadableLog, entries: list[Entry]) -> dict[str, tuple[str, str]]:
    """Agent and tool of the calls that entries belong to."""
    owners = dict(named(entries))
    missing = {str(call) for entry in entries if (call := entry.record.get("call"))} - owners.keys()
    if missing and entries:
        for call, owner in named(islice(log.read_back(entries[-1].index), SCANNED_RECORDS)):
            owners.setdefault(call, owner)
            missing.discard(call)
            if not missing:
                break
    return owners


class _ProvingLog(NamedTuple):
    """A log by its name, with what proves its records."""

    log: ReadableLog
    receipt: Callable[[int], Receipt]
    key: str = ""
    """The public key of another server's log."""


def _find_log(keep: Keep, origin: str) -> _ProvingLog:
    """The log of a name, of whichever server; without a name, that of this one."""
    record = keep.record
    if not origin or (isinstance(record, FileRecord) and record.log.public_key().name == origin):
        return _ProvingLog(record.log, record.receipt)
    for one in keep.shared.remote_logs.all() if keep.shared else ():
        if one.origin == origin:
            return _ProvingLog(one, one.receipt, one.published.key)
    raise not_found("log")


@contextlib.contextmanager
def reading_elsewhere() -> Iterator[None]:
    """Turn failures to read the logs of other servers into answers."""
    try:
        yield
    except StoreUnavailable as error:
        # Not "no such record": it may be in one of these logs.
        logger.warning("the logs of other servers cannot be read", extra={"reason": error.message})
        message = "the logs of other servers cannot be read now"
        raise RequestRefused(Code.STORE_UNAVAILABLE, message, hint="try again soon") from error
    except AuditBroken as broken:
        _warn_of_missing(broken)
        raise not_found("record") from broken


async def show_record(keep: Keep, caller: Caller, index: int, origin: str = "") -> RecordView:
    """One record of the log of a name; of this server's without one."""

    def show() -> RecordView:
        with reading_elsewhere():
            return _view(_entry(keep, _find_log(keep, origin).log, caller, index))

    return await asyncio.to_thread(show)


def _view(entry: Entry) -> RecordView:
    return RecordView(index=entry.index, hash=entry.hash, previous=entry.previous, record=entry.record)


def _entry(keep: Keep, log: ReadableLog, caller: Caller, index: int) -> Entry:
    """The entry if the caller may see it; otherwise the same error as for one that does not exist."""
    entry = next(log.read_back(index + 1), None)
    if entry is None or entry.index != index:
        raise not_found("record")
    call = str(entry.record.get("call", ""))
    owner, tool = _owners(log, [entry]).get(call, ("", ""))
    if not caller.has_scope(Scope.AUDIT_READ) and owner != caller.agent:
        raise not_found("record")
    if call:
        note_shown(keep, caller, tool)  # what it touched may be the text behind a reference
    return entry


class ProvenRecord(NamedTuple):
    """A receipt, and the public key that verifies it."""

    receipt: dict[str, Any]
    key: str


async def receipt(keep: Keep, caller: Caller, index: int, origin: str = "") -> ProvenRecord:
    """An inclusion proof of a record, verifiable offline with the public key alone."""

    def prove() -> ProvenRecord:
        with reading_elsewhere():
            found = _find_log(keep, origin)
            _entry(keep, found.log, caller, index)
            proven = found.receipt(index).to_dict()
            return ProvenRecord(proven, found.key or str(_files(keep).log.public_key()))

    return await asyncio.to_thread(prove)


async def call_records(
    keep: Keep, caller: Caller, call_id: str, index: CallIndex | None = None
) -> CallRecords:
    """All records of one call."""
    return await asyncio.to_thread(_call_records, keep, caller, call_id, index)


def _call_records(keep: Keep, caller: Caller, call_id: str, index: CallIndex | None) -> CallRecords:
    bodies: ReadBody = keep.record.bodies.get
    entries, server, origin = _entries_of(keep.record, call_id, index), "", ""
    if entries and keep.shared is not None:
        origin = _files(keep).log.public_key().name
    elif keep.shared is not None:
        bodies = keep.shared.remote_logs.copies.body
        entries, server, origin = _entries_elsewhere(keep.shared.remote_logs, call_id)
    owner = dict(named(entries)).get(call_id, ("", ""))[0]
    if not entries or not (caller.has_scope(Scope.AUDIT_READ) or owner == caller.agent):
        raise not_found("call")
    said = [entry.record for entry in entries]
    note_shown(keep, caller, str(said[0].get("tool", "")))  # in whichever session it was
    is_auditor = caller.has_scope(Scope.AUDIT_READ)
    kept = read_kept(said, bodies)
    if kept is not None and not is_auditor:
        kept = msgspec.structs.replace(kept, diagnosis="")
    verdict = verdict_of(said, kept)
    arguments, why = _arguments(keep, bodies, said, kept)
    result = next((str(one["result_hash"]) for one in said if one.get("result_hash")), "")
    return CallRecords(
        call=call_id,
        outcome=verdict.outcome,
        sentence=verdict.sentence,
        remedy=verdict.remedy if is_auditor else "",
        records=[_view(entry) for entry in entries],
        stages=_stages(said),
        arguments=arguments,
        is_whole=kept is None or kept.received is None or kept.is_whole,
        no_arguments=why,
        result=_body(bodies, result),
        refusal=kept.text if kept is not None else "",
        problems=[_with_value(one, arguments) for one in kept.problems] if kept is not None else [],
        denied_by=_denying(keep, caller, said, arguments),
        diagnosis=_diagnosis(keep, call_id, said, kept) if is_auditor else "",
        server=server,
        origin=origin,
    )


def _entries_elsewhere(remote: "RemoteLogs", call_id: str) -> "tuple[list[Entry], str, str]":
    """The records of a call of another server, with the names of that and of its log."""
    with reading_elsewhere():
        for log, call in remote.calls(call_id, is_prefix=False):
            if call.call_id == call_id:
                return log.of_call(call), log.server, log.origin
    return [], "", ""


def _warn_of_missing(broken: AuditBroken) -> None:
    """Log that copies are missing; `verify` names them."""
    logger.error("copies of the log of a server are missing", extra={"reason": broken.message})


def kept_refusal(keep: Keep, said: list[dict[str, Any]], *, is_elsewhere: bool) -> KeptRefusal | None:
    """What is kept of a refusal or failure; of a call of another server in its copies."""
    if is_elsewhere and keep.shared is not None:
        return read_kept(said, keep.shared.remote_logs.copies.body)
    return read_kept(said, keep.record.bodies.get)


def log_of(keep: Keep, origin: str) -> ReadableLog:
    """The log of a name; of this server without one."""
    return _find_log(keep, origin).log


def _diagnosis(keep: Keep, call_id: str, said: list[dict[str, Any]], kept: KeptRefusal | None) -> str:
    """Why a call failed, whichever process made it; empty if it did not fail."""
    if kept is not None:
        return kept.diagnosis
    digest = said[-1].get("diagnosis_hash")
    if digest:
        return REFUSAL_EXPIRED
    own = keep.diagnosis(call_id) if digest is not None else None
    return "" if digest is None else own.text if own is not None else DIAGNOSIS_NOT_KEPT


def _with_value(problem: KeptProblem, arguments: Any) -> KeptProblem:
    """A problem with the value that was sent, where it names a place and no value."""
    if problem.actual or not problem.path:
        return problem
    try:
        value = look_up(arguments, problem.path)
    except KeyError:
        return problem
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return msgspec.structs.replace(problem, actual=shorten(text, _VALUE_CHARS))


def _denying(keep: Keep, caller: Caller, said: list[dict[str, Any]], arguments: Any) -> list[DenyingPolicy]:
    """The policies that denied a call, each with the arguments that it reads."""
    decision = next((one for one in reversed(said) if one.get("type") == "PolicyDecision"), None)
    if decision is None or decision.get("decision") != "deny":
        return []
    in_force = keep.authorizer.active_policies.engine.policies
    stored = {one.name for one in keep.stored_policies}
    may_read = caller.has_scope(Scope.POLICIES_READ)
    found = []
    for name in map(str, decision.get("policies") or ()):
        policy = in_force.by_id.get(name)
        text = "" if policy is None else policy.text
        names = dict.fromkeys("".join(groups) for groups in _READ_ARGUMENT.findall(text))
        sent = arguments if isinstance(arguments, dict) else {}
        denying = DenyingPolicy(
            policy=name,
            text="",
            reads={argument: sent[argument] for argument in names if argument in sent},
            is_unchanged=decision.get("policy_set_hash") == in_force.hash,
        )
        if policy is not None and may_read:
            denying = msgspec.structs.replace(
                denying,
                text=text,
                place=f"{PurePath(policy.source).name}:{policy.line}:{policy.column}",
                stored_in=policy.source if policy.source in stored else "",
            )
        found.append(denying)
    return found


def _stages(said: list[dict[str, Any]]) -> list[StageTime]:
    times = next((one["stage_us"] for one in reversed(said) if one.get("stage_us")), ())
    begins = accumulate(times, initial=0)
    return [
        StageTime(stage=stage, began_us=began, took_us=took)
        for stage, began, took in zip(STAGES, begins, times, strict=False)
    ]


def _arguments(
    keep: Keep, bodies: ReadBody, said: list[dict[str, Any]], refusal: KeptRefusal | None
) -> "tuple[Any, NoArguments | None]":
    """The arguments of a call, or why there are none."""
    if kept := next((str(one["argument_hash"]) for one in said if one.get("has_arguments")), ""):
        try:
            return json.loads(bodies(kept)), None
        except BodyUnavailable as error:
            is_gone = error.state is BodyState.MISSING and "diagnosis_hash" in said[-1]
            return None, "expired" if is_gone else error.state.value
        except (KeyError, ValueError):
            return None, "missing"
    if refusal is not None and said[0].get("has_arguments") is None:
        return refusal.received, None if refusal.received is not None else "unreadable"
    return None, _why_not_kept(keep, said[0])


def _why_not_kept(keep: Keep, invoked: dict[str, Any]) -> "NoArguments":
    if invoked.get("repeats"):
        return "repeated"
    if invoked.get("has_arguments") is None:
        return "expired" if invoked.get("diagnosis_hash") else "refused"
    tool = keep.try_get(f"{invoked.get('tool')}@{invoked.get('version')}")
    if tool is None or tool.definition_hash != invoked.get("definition_hash"):
        return "unknown"  # the definition is gone, which alone tells whether arguments are secret
    return "secret" if tool.arguments.secrecy.has_secrets else "too_large"


def _entries_of(record: KeepRecord, call_id: str, index: CallIndex | None) -> list[Entry]:
    """The entries of a call in order, searched a few pages back if they are not indexed."""
    if index is not None and (indexed := index.entries_of(record.log, call_id)):
        return indexed
    found: list[Entry] = []
    for entry in islice(record.log.read_back(), 4 * SCANNED_RECORDS):
        if entry.record.get("call") == call_id:
            found.append(entry)
            if entry.record.get("type") == "ToolInvoked":
                break
    return found[::-1]


def _body(bodies: ReadBody, digest: str) -> Any:
    if not digest:
        return None
    with contextlib.suppress(BodyUnavailable, KeyError, ValueError):
        return json.loads(bodies(digest))
    return None


async def checkpoint(keep: Keep) -> CheckpointView:
    """A signed checkpoint over all records so far."""
    return CheckpointView(checkpoint=await asyncio.to_thread(_files(keep).log.checkpoint))


async def public_key(keep: Keep, origin: str = "") -> KeyView:
    """The public key of the log of a name; of this server's without one."""

    def read() -> str:
        with reading_elsewhere():
            return _find_log(keep, origin).key or str(_files(keep).log.public_key())

    return KeyView(key=await asyncio.to_thread(read))


_verifying = threading.Lock()


async def verify_log(keep: Keep) -> dict[str, Any]:
    """Verify the whole log, and those of the other servers; one run at a time, since it reads everything."""
    from toolkeep.storage.log.verify_folder import verify

    files = _files(keep)
    if not _verifying.acquire(blocking=False):
        raise RequestRefused(Code.NOT_SERVING, "the log is already being verified", hint="try again soon")
    try:
        report = await asyncio.to_thread(verify, files.log)
        others = await asyncio.to_thread(keep.shared.remote_logs.verify) if keep.shared else []
    finally:
        _verifying.release()
    data: dict[str, Any] = {**report.to_dict(), "log": "the keep's own"}
    return data | ({"others": [one.to_dict() for one in others]} if keep.shared else {})


def _files(keep: Keep) -> FileRecord:
    record = keep.record
    if not isinstance(record, FileRecord):
        raise NotRecorded("the log is only in memory; open the keep with a state folder")
    return record


async def _list(service: Service, request: Request) -> Response:
    query = request.query
    filters = RecordFilters(**{name: query[name] for name in RecordFilters.__struct_fields__})
    return json_response(
        await list_records(
            service.keep, request.caller, filters, limit=query["limit"], cursor=query["cursor"]
        )
    )


async def _calls(service: Service, request: Request) -> Response:
    query = request.query
    filters = call_filters(query)
    found = await list_calls(
        service.keep,
        request.caller,
        filters,
        limit=query["limit"],
        cursor=query["cursor"],
        index=service.index,
        tells_why=True,
    )
    total = await count_calls(service, request.caller, filters, found, query["cursor"])
    calls = [CallView.of(one) for one in found.items if one.newest.call]
    return json_response(CallPage(items=calls, next=found.next, total=total))


async def _show(service: Service, request: Request) -> Response:
    index, origin = int(request.names["index"]), str(request.query["origin"])
    return json_response(await show_record(service.keep, request.caller, index, origin))


async def _receipt(service: Service, request: Request) -> Response:
    index, origin = int(request.names["index"]), str(request.query["origin"])
    return json_response((await receipt(service.keep, request.caller, index, origin)).receipt)


async def _call(service: Service, request: Request) -> Response:
    return json_response(await call_records(service.keep, request.caller, request.names["id"], service.index))


async def _checkpoint(service: Service, request: Request) -> Response:
    return json_response(await checkpoint(service.keep))


async def _key(service: Service, request: Request) -> Response:
    return json_response(await public_key(service.keep, str(request.query["origin"])))


async def _verify(service: Service, request: Request) -> Response:
    return json_response(await service.verification.run(verify_log(service.keep)))


async def _statistics(service: Service, request: Request) -> Response:
    return json_response(await service.statistics.view(service.keep, int(request.query["hours"])))


_TIME: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,15}(Z|[+-][0-9]{2}:[0-9]{2})"
TIMES: Final = (
    Parameter(name="since", about="Only calls that began at this time or later.", pattern=_TIME, longest=32),
    Parameter(name="until", about="Only calls that began before this time.", pattern=_TIME, longest=32),
)
"""ISO 8601 with a zone: without one, a time would be another on each machine."""
_SEERS: Final = (Scope.AUDIT_READ, Scope.CALL)
_INDEX: Final = Parameter(
    name="index", place="path", about="The index of a record.", pattern=r"[0-9]{1,15}", longest=15
)

ORIGIN: Final = Parameter(
    name="origin",
    about="The name of a log; by default that of the server which answers.",
    pattern=r"[A-Za-z0-9./_-]*",
    shortest=0,
    longest=128,
    default="",
)

ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/audit:statistics",
        name="showStatistics",
        about="Call statistics from the log: counts, durations and reasons.",
        handler=_statistics,
        scopes=(Scope.AUDIT_READ,),
        tag="audit",
        parameters=(
            Parameter(
                name="hours",
                about="Number of past hours to cover.",
                choices=tuple(map(str, PERIODS)),
                default="24",
            ),
        ),
        gives={200: ResponseSpec(about="The counts.", kind=StatisticsView)},
    ),
    Route(
        method="GET",
        path="/v1/audit",
        name="listRecords",
        about="Records, newest first: with the scope audit:read all, else those of the token's agent.",
        handler=_list,
        scopes=_SEERS,
        tag="audit",
        parameters=(
            Parameter(name="agent", about="Only records of this agent."),
            Parameter(name="tool", about="Only records of this tool."),
            Parameter(name="type", about="Only records of this type."),
            Parameter(name="status", about="Only records of this status."),
            LIMIT,
            CURSOR,
        ),
        gives={200: ResponseSpec(about="One page; a short page may not be the last.", kind=RecordPage)},
    ),
    Route(
        method="GET",
        path="/v1/audit/calls",
        name="listCalls",
        about="Calls with their outcomes, newest first: with the scope audit:read all, else the agent's own.",
        handler=_calls,
        scopes=_SEERS,
        tag="audit",
        parameters=(
            Parameter(name="agent", about="Only calls of this agent."),
            Parameter(name="tool", about="Only calls of this tool."),
            Parameter(name="type", about="Only calls with a record of this type."),
            Parameter(
                name="status",
                about="Only calls of this outcome or decision; `unsuccessful`: refused or failed.",
            ),
            Parameter(name="session", about="Only calls of this session."),
            Parameter(name="conversation", about="Only calls of this conversation."),
            Parameter(name="code", about="Only calls with this error code."),
            Parameter(name="text", about="Only calls with this text in a name, id or reason."),
            Parameter(name="hours", about="Only calls of the last hours.", pattern=r"[0-9]{1,5}", longest=5),
            *TIMES,
            Parameter(
                name="slower_ms", about="Only calls that took longer.", pattern=r"[0-9]{1,9}", longest=9
            ),
            Parameter(name="ran_ms", about="Only calls whose tool ran longer.", pattern=RUN_TIME, longest=13),
            Parameter(name="policy", about="Only calls that this policy decided, or asked about."),
            LIMIT,
            CURSOR,
        ),
        gives={200: ResponseSpec(about="One page; a short page may not be the last.", kind=CallPage)},
    ),
    Route(
        method="GET",
        path="/v1/audit/{index}",
        name="showRecord",
        about="One record as stored in the log.",
        handler=_show,
        scopes=_SEERS,
        tag="audit",
        parameters=(_INDEX, ORIGIN),
        gives={200: ResponseSpec(about="The record.", kind=RecordView)},
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/audit/{index}/receipt",
        name="showReceipt",
        about="The proof that the record is in the log, checkable offline with the public key.",
        handler=_receipt,
        scopes=_SEERS,
        tag="audit",
        parameters=(_INDEX, ORIGIN),
        gives={200: ResponseSpec(about="The receipt.", kind=dict[str, Any])},
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/audit/calls/{id}",
        name="showCallRecords",
        about="All records of a recent call, with its stored arguments and results.",
        handler=_call,
        scopes=_SEERS,
        tag="audit",
        parameters=(ID,),
        gives={200: ResponseSpec(about="The call.", kind=CallRecords)},
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/audit/checkpoint",
        name="showCheckpoint",
        about="A signed checkpoint over everything recorded so far, to store elsewhere.",
        handler=_checkpoint,
        scopes=_SEERS,
        tag="audit",
        gives={200: ResponseSpec(about="The checkpoint.", kind=CheckpointView)},
    ),
    Route(
        method="GET",
        path="/v1/audit/key",
        name="showKey",
        about="The public key of the log.",
        handler=_key,
        scopes=_SEERS,
        tag="audit",
        parameters=(ORIGIN,),
        gives={200: ResponseSpec(about="The key.", kind=KeyView)},
        problems=(404,),
    ),
    Route(
        method="POST",
        path="/v1/audit:verify",
        name="verifyLog",
        about="Verify the whole log; one verification at a time.",
        handler=_verify,
        scopes=(Scope.AUDIT_READ,),
        tag="audit",
        gives={200: ResponseSpec(about="What was found.", kind=dict[str, Any])},
    ),
)
