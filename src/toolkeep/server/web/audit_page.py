"""The audit log: a timeline of calls, one call with all of its records, verification and receipts."""

from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from toolkeep.errors import TITLES, Code
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.server.api import audit_routes
from toolkeep.server.http.request import Parameter
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service
from toolkeep.server.web.browser_security import security_headers
from toolkeep.server.web.web_request import PageRequest, page_route
from toolkeep.stores.api_tokens import Scope

_SHOWN: Final = 40
"""Calls of one page of the list: more than a screen, and the next page is loaded on scrolling."""
_TYPES: Final = (
    "ToolInvoked", "CapabilityCheck", "PolicyDecision", "Approval", "ServerAsked", "RanElsewhere",
    "ToolCompleted", "SessionEnded", "OperatorChange", "AuditAlarm", "AnsweredLate", "AnswersSigned",
    "WorkerRefused", "WorkersDisagreed",
)  # fmt: skip
_STATUSES: Final = ("ok", "error", "refused", "pending", "allow", "deny")
_TEXTS: Final = ("agent", "tool")


async def _timeline(service: Service, request: PageRequest) -> Response:
    query = request.query
    given = {name: query[name] or None for name in audit_routes.RecordFilters.__struct_fields__}
    found = await audit_routes.list_calls(
        service.keep,
        request.caller,
        audit_routes.RecordFilters(**given),
        limit=_SHOWN,
        cursor=query["cursor"] or None,
    )
    kept = {name: value for name, value in given.items() if value}
    more = "/ui/audit?" + urlencode({**kept, "cursor": found.next}) if found.next else ""
    rows = [Row(call=one) for one in found.items]
    data: dict[str, Any] = {"rows": rows, "more": more, "is_filtered": bool(kept), "stages": _TYPES}
    if request.wants_part:
        part = "parts/record_rows.html" if query["cursor"] else "parts/records.html"
        return request.renderer.page(request, part, **data)
    return request.renderer.page(
        request,
        "audit.html",
        **data,
        filters={name: value or "" for name, value in given.items()},
        types=_TYPES,
        statuses=_STATUSES,
    )


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A call in the timeline."""

    call: audit_routes.CallSummary

    @property
    def title(self) -> str:
        """Why it failed, as text."""
        code = next((code for one in self.call.records for code in one.codes), "")
        return TITLES[Code(code)] if code in set(Code) else code


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

ROUTES: Final = (
    page_route(
        "GET",
        "/ui/audit",
        _timeline,
        _SCOPES,
        *map(_text, _TEXTS),
        Parameter(name="type", about="", choices=("", *_TYPES), shortest=0, default=""),
        Parameter(name="status", about="", choices=("", *_STATUSES), shortest=0, default=""),
        Parameter(name="cursor", about="", shortest=0, longest=1024, default=""),
    ),
    page_route("POST", "/ui/audit:verify", _verify, _SCOPES),
    page_route("GET", "/ui/audit/{index}/receipt", _receipt, _SCOPES, _INDEX, audit_routes.ORIGIN),
    page_route(
        "POST", "/ui/audit/{index}/receipt:verify", _verify_receipt, _SCOPES, _INDEX, audit_routes.ORIGIN
    ),
)
