"""Sessions over HTTP, to look at: a list of the newest, and the timeline of one with its state and budgets.

A session is what callers named: `session`, else `conversation`, of one agent. With `audit:read` all are
shown, else those of the token's agent. A page reads a limited number of records.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from toolkeep.audit.call_timeline import (
    Change,
    SessionFacts,
    TimelineCall,
    body_hashes,
    changes_between,
    timeline_call,
)
from toolkeep.audit.entry import Entry
from toolkeep.flow.measures import to_decimal
from toolkeep.flow.meter import Caller as Metered
from toolkeep.flow.tracker import Flow
from toolkeep.keep.keep import Keep
from toolkeep.limits import NAMED_CHARS
from toolkeep.server.api import audit_routes
from toolkeep.server.api.call_index import CallIndex
from toolkeep.server.api.common_parameters import CURSOR
from toolkeep.server.api.pagination import Page
from toolkeep.server.api.recorded_calls import CallFilters, CallSummary
from toolkeep.server.api.session_routes import note_shown
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import not_found
from toolkeep.server.http.request import Parameter, Request
from toolkeep.server.http.responses import Response, json_response
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import Scope
from toolkeep.stores.records import ReadableLog

CALLS: Final = 50
"""Calls of one page of a timeline."""
_MOST_CALLS: Final = 200
_SCANS: Final = 4
"""Searches for one page: each reads a limited number of records, and may find none."""
_LISTED_CALLS: Final = 1_000
"""The newest calls, among which sessions are listed."""
_GAP: Final = 200
"""Records that are read rather than skipped: to begin anew takes about as long."""


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A session in a list, by its calls among the newest."""

    agent: str
    session: str
    conversation: str
    first_at: str
    last_at: str
    calls: int
    refused: int
    failed: int


class MeasureView(msgspec.Struct, frozen=True, kw_only=True):
    """A measure of a session or of its agent, and its budget."""

    name: str
    over: str
    """What it counts over: `a session`, `1 hour`, …"""
    value: str
    budget: str | None
    is_used_up: bool


class SessionStateView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a session now (FLO-1)."""

    opened: bool
    secret: bool
    shown_by: list[str]
    """Tools whose results the model was shown."""
    wrote_with: list[str]
    hosts: list[str]
    endorsed: int
    """Values that a person endorsed."""
    owner: str
    """What the state belongs to: the session, or the agent's caller."""
    changes: list[Change]
    """What it became since the last call that is shown."""


class SessionTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the calls that are shown."""

    calls: int
    refused: int
    failed: int
    unknown: int
    """Calls that may have run."""
    asked: int
    """Calls that a person answered, or was asked about in vain."""
    sent_bytes: int
    shown_bytes: int
    took_us: int


class SessionTimeline(Page, frozen=True, kw_only=True):
    """Calls of one session, the oldest first; `next` leads to earlier ones."""

    agent: str
    session: str
    conversation: str
    totals: SessionTotals
    state: SessionStateView | None
    """Null if nothing watches sessions, or no decision named the state."""
    measures: list[MeasureView]
    items: list[TimelineCall]


async def list_sessions(
    keep: Keep, caller: Caller, *, agent: str = "", index: CallIndex | None = None
) -> list[SessionSummary]:
    """The sessions of the newest calls that a caller may see, the newest first."""
    filters = CallFilters(agent=agent or None)
    page = await audit_routes.list_calls(keep, caller, filters, limit=_LISTED_CALLS, index=index)
    found: dict[tuple[str, str, str], list[CallSummary]] = {}
    for call in page.items:
        if call.session or call.conversation:
            # Calls of one session are one, whatever conversations it had.
            key = call.newest.agent, call.session, "" if call.session else call.conversation
            found.setdefault(key, []).append(call)
    return [_summary(key, calls) for key, calls in found.items()]


def _summary(key: tuple[str, str, str], calls: list[CallSummary]) -> SessionSummary:
    outcomes = [one.outcome for one in calls]
    return SessionSummary(
        agent=key[0],
        session=key[1],
        conversation=key[2],
        first_at=calls[-1].records[-1].time,
        last_at=calls[0].records[-1].time,
        calls=len(calls),
        refused=outcomes.count("refused"),
        failed=outcomes.count("error"),
    )


async def show_session(
    keep: Keep,
    caller: Caller,
    agent: str,
    *,
    session: str = "",
    conversation: str = "",
    limit: int = CALLS,
    cursor: str | None = None,
    index: CallIndex | None = None,
    scans: int = _SCANS,
) -> SessionTimeline:
    """The newest calls of a session, or those before a cursor; none if nothing of it is recorded."""
    agent = agent or caller.agent
    if not (caller.has_scope(Scope.AUDIT_READ) or agent == caller.agent) or not (session or conversation):
        raise not_found("session")
    filters = CallFilters(agent=agent, session=session or None, conversation=conversation or None)
    is_first = cursor is None
    found, cursor = await find_calls(
        keep, caller, filters, limit=limit, cursor=cursor, index=index, scans=scans
    )
    calls = await asyncio.to_thread(_timeline, keep, caller, found[::-1])
    flow = keep.authorizer.flow
    facts = next((one.facts for one in reversed(calls) if one.facts is not None), None)
    state, measures = None, []
    if is_first and flow is not None and facts is not None and facts.owner:
        state = await asyncio.to_thread(_state, flow, facts)
        measures = await asyncio.to_thread(_measures, flow, agent, facts)
    return SessionTimeline(
        agent=agent,
        session=session,
        conversation=conversation,
        totals=_totals(calls),
        state=state,
        measures=measures,
        items=calls,
        next=cursor,
    )


async def find_calls(
    keep: Keep,
    caller: Caller,
    filters: CallFilters,
    *,
    limit: int,
    cursor: str | None = None,
    index: CallIndex | None = None,
    scans: int = _SCANS,
    tells_why: bool = False,
) -> tuple[list[CallSummary], str | None]:
    """The newest calls before a cursor that fit, and the cursor to go on before."""
    found: list[CallSummary] = []
    for _ in range(scans):
        page = await audit_routes.list_calls(
            keep,
            caller,
            filters,
            limit=limit - len(found),
            cursor=cursor,
            index=index,
            tells_why=tells_why,
        )
        found += page.items
        cursor = page.next
        if cursor is None or len(found) >= limit:
            break
    return found, cursor


def _timeline(keep: Keep, caller: Caller, found: Sequence[CallSummary]) -> list[TimelineCall]:
    """The calls in order, each with what changed since the one before."""
    for tool in {one.newest.tool for one in found}:
        note_shown(keep, caller, tool)  # a reason may quote what another session was shown
    with audit_routes.reading_elsewhere():
        records = [[entry.record for entry in entries] for entries in _records(keep, found)]
    hashes = [digest for one in records for digest in body_hashes(one)]
    sizes = keep.record.bodies.sizes(hashes) if hashes else {}
    calls: list[TimelineCall] = []
    before: SessionFacts | None = None
    for summary, said in zip(found, records, strict=True):
        kept = audit_routes.kept_refusal(keep, said, is_elsewhere=_is_elsewhere(keep, summary))
        if kept is not None and not caller.has_scope(Scope.AUDIT_READ):
            kept = msgspec.structs.replace(kept, diagnosis="")
        call = timeline_call(said, kept, sizes, before=before, server=summary.newest.server)
        calls.append(call)
        before = call.facts or before
    return calls


def _is_elsewhere(keep: Keep, summary: CallSummary) -> bool:
    return keep.shared is not None and summary.newest.server != keep.shared.remote_logs.server


def _records(keep: Keep, found: Sequence[CallSummary]) -> list[list[Entry]]:
    """The entries of each call, oldest first."""
    wanted: dict[str, set[int]] = {}
    for call in found:
        wanted.setdefault(call.newest.origin, set()).update(one.index for one in call.records)
    read = {
        origin: entries_at(audit_routes.log_of(keep, origin), indexes) for origin, indexes in wanted.items()
    }
    return [[read[call.newest.origin][one.index] for one in reversed(call.records)] for call in found]


def entries_at(log: ReadableLog, indexes: Iterable[int]) -> dict[int, Entry]:
    """The entries at some indexes; what lies far between them is not read."""
    found: dict[int, Entry] = {}
    reader: Iterator[Entry] = iter(())
    at = 0
    for index in sorted(indexes, reverse=True):
        if not at - _GAP < index < at:
            reader = log.read_back(index + 1)
        for entry in reader:
            at = entry.index
            if at <= index:
                found[at] = entry
                break
    return found


def _totals(calls: Sequence[TimelineCall]) -> SessionTotals:
    outcomes = [one.outcome for one in calls]
    return SessionTotals(
        calls=len(calls),
        refused=outcomes.count("refused"),
        failed=outcomes.count("failed"),
        unknown=outcomes.count("unknown"),
        asked=sum(one.answer is not None and one.answer.waited_ms is not None for one in calls),
        sent_bytes=sum(one.sent_bytes or 0 for one in calls),
        shown_bytes=sum(one.shown_bytes or 0 for one in calls),
        took_us=sum(one.took_us for one in calls),
    )


def _state(flow: Flow, facts: SessionFacts) -> SessionStateView:
    held = flow.stored(facts.owner)
    # A person may have ended it since, so that the stored state decides, not the last call.
    now = msgspec.structs.replace(facts, opened=held.opened, secret=held.secret)
    return SessionStateView(
        opened=held.opened,
        secret=held.secret,
        shown_by=sorted(held.after),
        wrote_with=sorted(held.wrote),
        hosts=sorted(held.hosts),
        endorsed=len(held.endorsed),
        owner=facts.owner,
        changes=changes_between(facts, now),
    )


def _measures(flow: Flow, agent: str, facts: SessionFacts) -> list[MeasureView]:
    """Every measure and budget; those of a time window count all calls of the agent."""
    declared = flow.settings.measures
    totals = flow.meter.totals(Metered(agent, facts.owner))
    budgets = {one.measure.name: one for one in declared.budgets}
    found = []
    for name, measure in declared.by_name.items():
        budget = budgets.get(name)
        found.append(
            MeasureView(
                name=budget.name if budget else name,
                over=measure.window,
                value=_number(totals[name]),
                budget=_number(to_decimal(budget.limit)) if budget else None,
                is_used_up=budget is not None and float(totals[name]) >= float(to_decimal(budget.limit)),
            )
        )
    return found


def _number(decimal: str) -> str:
    return decimal.rstrip("0").rstrip(".")


async def _list(service: Service, request: Request) -> Response:
    agent = str(request.query["agent"] or "")
    found = await list_sessions(service.keep, request.caller, agent=agent, index=service.index)
    return json_response(found)


async def _show(service: Service, request: Request) -> Response:
    given: dict[str, Any] = {name: str(request.query[name] or "") for name in ("session", "conversation")}
    shown = await show_session(
        service.keep,
        request.caller,
        str(request.query["agent"] or ""),
        **given,
        limit=int(request.query["limit"]),
        cursor=request.query["cursor"],
        index=service.index,
    )
    return json_response(shown)


_SEERS: Final = (Scope.AUDIT_READ, Scope.CALL)

ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/sessions",
        name="listSessions",
        about="Sessions of the newest calls: with the scope audit:read all, else those of the token's agent.",
        handler=_list,
        scopes=_SEERS,
        tag="sessions",
        parameters=(Parameter(name="agent", about="Only sessions of this agent.", longest=NAMED_CHARS),),
        gives={200: ResponseSpec(about="The sessions, newest first.", kind=list[SessionSummary])},
    ),
    Route(
        method="GET",
        path="/v1/sessions:show",
        name="showSession",
        about="The calls of one session in order, with its state and its budgets.",
        handler=_show,
        scopes=_SEERS,
        tag="sessions",
        parameters=(
            Parameter(name="agent", about="Its agent; by default the token's.", longest=NAMED_CHARS),
            Parameter(name="session", about="As the caller named it.", longest=NAMED_CHARS),
            Parameter(name="conversation", about="As the caller named it.", longest=NAMED_CHARS),
            Parameter(
                name="limit",
                kind="integer",
                about="Maximum number of calls.",
                default=CALLS,
                minimum=1,
                maximum=_MOST_CALLS,
            ),
            CURSOR,
        ),
        gives={200: ResponseSpec(about="Its newest calls, oldest first.", kind=SessionTimeline)},
        problems=(404,),
    ),
)
