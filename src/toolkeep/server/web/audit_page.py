"""The audit log: a timeline of calls, one call with all of its records, verification and receipts."""

import asyncio
import csv
import io
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup

from toolkeep.approval.question import Question
from toolkeep.audit.call_verdict import duration_text
from toolkeep.errors import FAILURES, TITLES, Code
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.server.api import audit_routes
from toolkeep.server.api.recorded_calls import (
    RUN_TIME,
    UNSUCCESSFUL,
    CallFilters,
    CallSummary,
    CallView,
    milliseconds,
)
from toolkeep.server.http.request import Parameter
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service, sees_as
from toolkeep.server.web.browser_security import security_headers
from toolkeep.server.web.templates_env import shown_text
from toolkeep.server.web.web_request import PageRequest, page_route
from toolkeep.stores.api_tokens import Scope

_SHOWN: Final = 40
"""Calls of one page of the list: more than a screen, and the next page is loaded on scrolling."""
_TYPES: Final = (
    "ToolInvoked", "CapabilityCheck", "PolicyDecision", "Approval", "ServerAsked", "RanElsewhere",
    "ToolCompleted", "SessionEnded", "OperatorChange", "AgentDrift", "AuditAlarm", "AnsweredLate",
    "AnswersSigned", "WorkerRefused", "RefusedElsewhere", "WorkersDisagreed", "IdentityRefused",
)  # fmt: skip
_STATUSES: Final = (
    "ok", "error", "refused", UNSUCCESSFUL, "unknown", "pending", "repeated", "under way", "allow", "deny"
)  # fmt: skip
"""Outcomes, and decisions of policies."""
_NAMES: Final = ("agent", "tool", "session", "conversation")
_TEXTS: Final = (*_NAMES, "text", "policy")
_OF_RECORDS: Final = ("type", "code", "text", "policy", "slower_ms", "ran_ms")
"""Filters that no call fits before it has records."""
_HOURS: Final = {"1": "last hour", "6": "last 6 hours", "24": "last day", "168": "last 7 days"}
_NAMED: Final = 500
"""Tools or policies that a field suggests; any other can be typed."""


@lru_cache(maxsize=16)
def _options(names: tuple[str, ...]) -> Markup:
    """Suggestions of a field; hundreds take as long as all the calls of a page."""
    return Markup("").join(Markup('<option value="{}"></option>').format(shown_text(one)) for one in names)


async def _timeline(service: Service, request: PageRequest) -> Response:
    query = request.query
    filters = audit_routes.call_filters(request.query)
    found = await audit_routes.list_calls(
        service.keep,
        request.caller,
        filters,
        limit=_SHOWN,
        cursor=query["cursor"] or None,
        index=service.index,
        tells_why=True,
    )
    cursor = query["cursor"] or None
    total = None
    if cursor is None:
        total = await audit_routes.count_calls(service, request.caller, filters, found, cursor)
    given = msgspec.structs.asdict(filters)
    kept = {name: value for name, value in given.items() if value}
    more = "/ui/audit?" + urlencode({**kept, "cursor": found.next}) if found.next else ""
    rows = [Row(call=one) for one in found.items]
    data: dict[str, Any] = {
        "rows": rows,
        "more": more,
        "is_filtered": bool(kept),
        "total": total,
        "kept": urlencode(kept),
        "waiting": await _waiting_ids(service, request, filters),
    }
    if request.wants_part:
        part = "parts/record_rows.html" if query["cursor"] else "parts/records.html"
        return request.renderer.page(request, part, **data)
    tools = service.keep.tools(agent=sees_as(request.caller))
    return request.renderer.page(
        request,
        "audit.html",
        **data,
        filters={name: value or "" for name, value in given.items()},
        types=_TYPES,
        statuses=_STATUSES,
        hours=_HOURS,
        tools=_options(tuple(tool.name for tool in tools[:_NAMED])),
        agents=sorted(service.keep.agents),
        policies=_policies(service, request),
        codes=await asyncio.to_thread(_codes, service),
    )


async def _waiting(service: Service, request: PageRequest) -> Response:
    filters = audit_routes.call_filters(request.query)
    given = {name: value for name, value in msgspec.structs.asdict(filters).items() if value}
    waiting = await _waiting_ids(service, request, filters)
    return request.renderer.page(request, "parts/audit_waiting.html", waiting=waiting, kept=urlencode(given))


async def _waiting_ids(service: Service, request: PageRequest, filters: CallFilters) -> list[str]:
    """The questions about calls that would fit: the log has a call once its question is answered."""
    if not request.caller.has_scope(Scope.APPROVE):
        return []
    waiting = await asyncio.to_thread(service.keep.record.approvals.waiting)
    return [one.question.id for one in waiting if _may_fit(one.question, filters)]


def _may_fit(question: Question, filters: CallFilters) -> bool:
    """Whether its call would fit, as far as is known before it has an outcome."""
    asked_ms = question.asked_at * 1000
    return (
        filters.status in (None, "pending", "under way")
        and all(getattr(filters, one) in (None, getattr(question, one)) for one in _NAMES)
        and not any(getattr(filters, one) for one in _OF_RECORDS)
        and asked_ms >= filters.begin_ms()
        and (filters.until is None or asked_ms < milliseconds(filters.until))
    )


def _codes(service: Service) -> list[tuple[str, list[tuple[str, str]]]]:
    """The reasons to choose from: first those that occurred, as far as the log is indexed."""
    occurred = service.index.codes(service.keep.record.log)
    groups: dict[str, list[tuple[str, str]]] = {"Occurred": [], "Other failures": [], "Other reasons": []}
    for code, title in sorted(TITLES.items(), key=lambda pair: pair[1].casefold()):
        other = "Other failures" if code in FAILURES else "Other reasons"
        groups["Occurred" if code in occurred else other].append((code.value, title))
    return [(label, held) for label, held in groups.items() if held]


def _policies(service: Service, request: PageRequest) -> list[str]:
    """Those in force, to choose from; any other can be typed."""
    if not request.caller.has_scope(Scope.POLICIES_READ):
        return []
    in_force = service.keep.authorizer.active_policies.engine.policies.policies
    return sorted(one.id for one in in_force)[:_NAMED]


async def _export(service: Service, request: PageRequest) -> Response:
    """What is filtered, as a file."""
    calls = await audit_routes.export_calls(service, request.caller, audit_routes.call_filters(request.query))
    kind = str(request.query["format"])
    if kind == "csv":
        body, media = _csv(calls), b"text/csv; charset=utf-8"
    else:
        body = b"".join(msgspec.json.encode(one) + b"\n" for one in calls)
        media = b"application/jsonl"
    place = f'attachment; filename="calls.{kind}"'.encode()
    return Response(200, body, media, ((b"content-disposition", place), *security_headers(request.nonce)))


def _csv(calls: list[CallView]) -> bytes:
    text = io.StringIO(newline="")
    rows = csv.writer(text)
    rows.writerow(CallView.__struct_fields__)
    rows.writerows([_cell(value) for value in msgspec.structs.astuple(one)] for one in calls)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _cell(value: object) -> object:
    """A value that no spreadsheet takes for a formula: models choose names."""
    text = " ".join(value) if isinstance(value, list) else value
    return f"'{text}" if isinstance(text, str) and text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A call in the timeline."""

    call: CallSummary

    @property
    def took(self) -> str:
        """How long it took, as text; empty if that is not known."""
        return duration_text(self.call.took_us) if self.call.took_us else ""


async def _receipt(service: Service, request: PageRequest) -> Response:
    index, origin = int(request.names["index"]), str(request.query["origin"])
    proven = await audit_routes.receipt(service.keep, request.caller, index, origin)
    body = canonical_bytes(proven.receipt)
    place = f'attachment; filename="receipt-{index}.json"'.encode()
    return Response(
        200, body, b"application/json", ((b"content-disposition", place), *security_headers(request.nonce))
    )


async def _verify(service: Service, request: PageRequest) -> Response:
    report = await service.verification.run(audit_routes.verify_log(service.keep))
    told = ((b"hx-trigger", b"verified"),)  # the status line says so too
    return request.renderer.part(request, "parts/verified.html", headers=told, report=report)


async def _verify_receipt(service: Service, request: PageRequest) -> Response:
    """Verify the receipt of a record with the public key alone, as a third party would."""
    from toolkeep.audit.receipt import verify_receipt

    index, origin = int(request.names["index"]), str(request.query["origin"])
    given, key = await audit_routes.receipt(service.keep, request.caller, index, origin)
    verified = verify_receipt(given, key)
    return request.renderer.page(request, "parts/receipt.html", verified=verified, key=key, index=index)


def _text(name: str) -> Parameter:
    return Parameter(name=name, about="", shortest=0, longest=256, default="")


_INDEX: Final = Parameter(name="index", place="path", about="", pattern=r"[0-9]{1,15}", longest=15)


_SCOPES: Final = (Scope.AUDIT_READ,)

_FILTERS: Final = (
    *map(_text, _TEXTS),
    Parameter(name="type", about="", choices=("", *_TYPES), shortest=0, default=""),
    Parameter(name="status", about="", choices=("", *_STATUSES), shortest=0, default=""),
    Parameter(name="code", about="", choices=("", *map(str, Code)), shortest=0, default=""),
    Parameter(name="hours", about="", choices=("", *_HOURS), shortest=0, default=""),
    *(
        msgspec.structs.replace(one, pattern=f"({one.pattern})?", shortest=0, default="")
        for one in audit_routes.TIMES
    ),
    Parameter(name="slower_ms", about="", pattern=r"[0-9]{0,9}", shortest=0, longest=9, default=""),
    Parameter(name="ran_ms", about="", pattern=f"({RUN_TIME})?", shortest=0, longest=13, default=""),
)

ROUTES: Final = (
    page_route(
        "GET",
        "/ui/audit/export",
        _export,
        _SCOPES,
        *_FILTERS,
        Parameter(name="format", about="", choices=("jsonl", "csv"), default="jsonl"),
    ),
    page_route(
        "GET",
        "/ui/audit",
        _timeline,
        _SCOPES,
        *_FILTERS,
        Parameter(name="cursor", about="", shortest=0, longest=1024, default=""),
    ),
    page_route("GET", "/ui/audit/waiting", _waiting, (Scope.APPROVE,), *_FILTERS),
    page_route("POST", "/ui/audit:verify", _verify, _SCOPES),
    page_route("GET", "/ui/audit/{index}/receipt", _receipt, _SCOPES, _INDEX, audit_routes.ORIGIN),
    page_route(
        "POST", "/ui/audit/{index}/receipt:verify", _verify_receipt, _SCOPES, _INDEX, audit_routes.ORIGIN
    ),
)
