"""The timeline of the log, one call with everything recorded of it, verification and receipts."""

from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from toolkeep.canonical import canonical_bytes
from toolkeep.errors import TITLES, Code
from toolkeep.limits import BODY_ARGUMENT_BYTES, KIB
from toolkeep.server import audit
from toolkeep.server.answers import Answer
from toolkeep.server.page.request import PageRequest, page_route
from toolkeep.server.page.security import protective
from toolkeep.server.problems import RequestRefused
from toolkeep.server.request import Parameter
from toolkeep.server.routes.common import ID
from toolkeep.server.service import Service
from toolkeep.tokens import Scope

_SHOWN: Final = 40
_TYPES: Final = (
    "ToolInvoked", "CapabilityCheck", "PolicyDecision", "Approval", "ServerAsked", "ToolCompleted",
)  # fmt: skip
_STATUSES: Final = ("ok", "error", "pending", "allow", "deny")
_TEXTS: Final = ("agent", "tool")
_LEFT_OUT: Final = frozenset(("type", "time", "call"))
_NO_ARGUMENTS: "Final[dict[audit.NoArguments | None, str]]" = {
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


async def _timeline(service: Service, request: PageRequest) -> Answer:
    query = request.query
    given = {name: query[name] or None for name in audit.RecordFilters.__struct_fields__}
    found = await audit.list_calls(
        service.keep,
        request.caller,
        audit.RecordFilters(**given),
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

    call: audit.CallSummary

    @property
    def title(self) -> str:
        """Why it did not go well, in words."""
        code = next((code for one in self.call.records for code in one.codes), "")
        return TITLES[Code(code)] if code in set(Code) else code


async def _call(service: Service, request: PageRequest) -> Answer:
    try:
        found = await audit.call_records(service.keep, request.caller, request.names["id"])
    except RequestRefused:
        # One that was just approved is on its way into the log.
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
        steps=[
            {"view": one, "facts": _facts(one.record), "codes": _codes(one.record)} for one in found.records
        ],
    )


def _facts(record: dict[str, Any]) -> list[tuple[str, str]]:
    """What a record says beyond its kind, call and time, as words."""
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


async def _receipt(service: Service, request: PageRequest) -> Answer:
    index = int(request.names["index"])
    body = canonical_bytes(await audit.receipt(service.keep, request.caller, index))
    place = f'attachment; filename="receipt-{index}.json"'.encode()
    return Answer(
        200, body, b"application/json", ((b"content-disposition", place), *protective(request.nonce))
    )


async def _verify(service: Service, request: PageRequest) -> Answer:
    report = await audit.verify_log(service.keep)
    return request.renderer.page(request, "parts/verified.html", report=report)


async def _verify_receipt(service: Service, request: PageRequest) -> Answer:
    """Check the receipt of a record as anybody else would: with the public key alone."""
    from toolkeep.audit.receipt import verify_receipt

    index = int(request.names["index"])
    given = await audit.receipt(service.keep, request.caller, index)
    key = (await audit.public_key(service.keep)).key
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
    page_route("GET", "/ui/audit/{index}/receipt", _receipt, _SCOPES, _INDEX),
    page_route("POST", "/ui/audit/{index}/receipt:verify", _verify_receipt, _SCOPES, _INDEX),
    page_route("GET", "/ui/calls/{id}", _call, _SCOPES, ID),
)
