"""The timeline of the log, one call with everything recorded of it, verification and receipts."""

from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from toolkeep.canonical import canonical_bytes
from toolkeep.errors import TITLES, Code
from toolkeep.server import audit
from toolkeep.server.answers import Answer
from toolkeep.server.page.request import PageRequest, page_route
from toolkeep.server.page.security import protective
from toolkeep.server.pagination import Page, encode_cursor
from toolkeep.server.problems import RequestRefused
from toolkeep.server.request import Parameter
from toolkeep.server.routes.common import ID
from toolkeep.server.service import Service
from toolkeep.tokens import Scope

_SHOWN: Final = 160
_CUT: Final = 12
"""How near the end of a page a call must begin to be left for the next one, where all of it stands."""
_TYPES: Final = (
    "ToolInvoked", "CapabilityCheck", "PolicyDecision", "Approval", "ServerAsked", "ToolCompleted",
)  # fmt: skip
_STATUSES: Final = ("ok", "error", "pending", "allow", "deny")
_TEXTS: Final = ("agent", "tool")
_LEFT_OUT: Final = frozenset(("type", "time", "call"))


async def _timeline(service: Service, request: PageRequest) -> Answer:
    query = request.query
    given = {name: query[name] or None for name in audit.RecordFilters.__struct_fields__}
    found = await audit.list_records(
        service.keep,
        request.caller,
        audit.RecordFilters(**given),
        limit=_SHOWN,
        cursor=query["cursor"] or None,
    )
    kept = {name: value for name, value in given.items() if value}
    rows, following = (
        _grouped(found) if not (given["type"] or given["status"]) else (_single(found), found.next)
    )
    more = "/ui/audit?" + urlencode({**kept, "cursor": following}) if following else ""
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


class Row(msgspec.Struct, kw_only=True):
    """Records of one call that stand on one page, the newest first."""

    records: list[audit.RecordSummary]

    @property
    def newest(self) -> audit.RecordSummary:
        """Where the call stands."""
        return self.records[0]

    @property
    def types(self) -> set[str]:
        """What happened to it."""
        return {one.type for one in self.records}

    @property
    def outcome(self) -> str:
        """How it ended, or how far it came."""
        newest = self.newest
        return newest.status if newest.status in ("ok", "error", "pending") else "under way"

    @property
    def title(self) -> str:
        """Why it did not go well, in words."""
        code = next((code for one in self.records for code in one.codes), "")
        return TITLES[Code(code)] if code in set(Code) else code


def _single(page: Page) -> list[Row]:
    return [Row(records=[one]) for one in page.items]


def _grouped(page: Page) -> tuple[list[Row], str | None]:
    """The records of each call together, and where the next page begins: calls are not cut in two."""
    rows: dict[str, Row] = {}
    for one in page.items:
        rows.setdefault(one.call or str(one.index), Row(records=[])).records.append(one)
    if page.next is None or not page.items:
        return list(rows.values()), page.next
    end = page.items[-min(_CUT, len(page.items))].index
    cut = [row for row in rows.values() if row.newest.call and _is_cut(row) and row.newest.index <= end]
    if not cut or len(cut) == len(rows):
        return list(rows.values()), page.next
    following = max(row.newest.index for row in cut) + 1
    whole = [row for row in rows.values() if row.newest.index >= following]
    return whole, encode_cursor(following)


def _is_cut(row: Row) -> bool:
    return "ToolInvoked" not in row.types


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
