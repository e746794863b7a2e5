"""The audit log: a timeline of calls, one call with all of its records, verification and receipts."""

from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from toolkeep.approval.question_text import name
from toolkeep.errors import TITLES, Code
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.limits import BODY_ARGUMENT_BYTES, KIB
from toolkeep.server.api import audit_routes
from toolkeep.server.api.common_parameters import ID
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.server.http.request import Parameter
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service
from toolkeep.server.web.browser_security import security_headers
from toolkeep.server.web.templates_env import kind_text
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
_LEFT_OUT: Final = frozenset(("type", "time", "call"))
_NO_ARGUMENTS: "Final[dict[audit_routes.NoArguments | None, str]]" = {
    None: "",
    "refused": "Not kept: the call was refused before its arguments were known to be valid.",
    "repeated": "The call ran before, under the same key. Its arguments are those of that call.",
    "secret": "Not kept: the tool takes secrets.",
    "too_large": f"Not kept: they are larger than {BODY_ARGUMENT_BYTES // KIB} KiB.",
    "erased": "They were erased.",
    "missing": "They are missing: the process ended before they were written.",
    "changed": "They were changed: they no longer have the hash that was recorded.",
    "unknown": f"Not kept: the tool took secrets, or they were larger than {BODY_ARGUMENT_BYTES // KIB} KiB.",
}


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


async def _call(service: Service, request: PageRequest) -> Response:
    try:
        found = await audit_routes.call_records(service.keep, request.caller, request.names["id"])
    except RequestRefused:
        # A call that was just approved is not in the log yet.
        return request.renderer.page(request, "no_call.html")
    first = found.records[0].record
    last = found.records[-1]
    return request.renderer.page(
        request,
        "call.html",
        call=found,
        first=first,
        last=last,
        no_arguments=_NO_ARGUMENTS[found.no_arguments],
        asked_at=next((one.record["asked_at"] for one in found.records if "asked_at" in one.record), None),
        steps=[
            {
                "view": one,
                "title": _title(one.record),
                "facts": _facts(one.record),
                "codes": _codes(one.record),
            }
            for one in found.records
        ],
    )


def _title(record: dict[str, Any]) -> str:
    """What a record says, as text."""
    if record.get("type") != "Approval":
        return kind_text(record.get("type", ""))
    if record.get("way") == "refused":
        return f"Denied by {name(record['approver'])}" if record.get("approver") else "Nobody approved it"
    earlier = " earlier" if record.get("way") in ("session", "rule") else ""
    return f"Approved{earlier} by {name(record.get('approver', ''))}"


def _facts(record: dict[str, Any]) -> list[tuple[str, str]]:
    """The details of a record as text."""
    return [
        (key.replace("_", " "), _words(value))
        for key, value in record.items()
        if key not in _LEFT_OUT and value not in (None, "", [], {})
    ]


def _words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else canonical_bytes(value).decode()


def _codes(record: dict[str, Any]) -> list[tuple[str, str]]:
    found = [str(code) for code in record.get("codes") or ()]
    return [(code, TITLES[Code(code)] if code in set(Code) else "") for code in found]


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
    page_route("GET", "/ui/calls/{id}", _call, _SCOPES, ID),
)
