"""One call: a sentence that says what came of it and why, its stages, records, arguments and result."""

import json
import shlex
from typing import Any, Final
from urllib.parse import quote

import msgspec

from toolkeep.approval.question_text import name
from toolkeep.audit.call_verdict import duration_text
from toolkeep.audit.record_kinds import STAGES
from toolkeep.errors import TITLES, Code
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.limits import BODY_ARGUMENT_BYTES, KIB
from toolkeep.server.api import approval_routes, audit_routes, policy_routes
from toolkeep.server.api.common_parameters import ID
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service
from toolkeep.server.web.policies_page import highlighted
from toolkeep.server.web.session_page import SHADES
from toolkeep.server.web.templates_env import STAGE_WORDS
from toolkeep.server.web.undo_page import has_writes
from toolkeep.server.web.web_request import PageRequest, page_route
from toolkeep.stores.api_tokens import Scope

_LEFT_OUT: Final = frozenset(("type", "time", "call"))
_WAITING: Final = 100
"""Approval requests among which that of a call is looked for."""
_BAR: Final = 1000
"""Width of the waterfall, in units of its drawing."""
_STAGE_OF: Final = {
    "ToolInvoked": "validate",
    "CapabilityCheck": "authorize",
    "PolicyDecision": "authorize",
    "Approval": "approve",
}
"""The stage that a record belongs to; those that are not named belong to the execution."""
_NO_ARGUMENTS: "Final[dict[audit_routes.NoArguments | None, str]]" = {
    None: "",
    "refused": "Not kept: an earlier version kept no arguments that were not valid.",
    "unreadable": "There were none, or they could not be read.",
    "repeated": "The call ran before, under the same key. Its arguments are those of that call.",
    "secret": "Not kept: the tool takes secrets.",
    "too_large": f"Not kept: they are larger than {BODY_ARGUMENT_BYTES // KIB} KiB.",
    "erased": "They were erased.",
    "expired": "No longer kept: those of refused calls are kept for seven days, the newest of each agent.",
    "missing": "They are missing: the process ended before they were written.",
    "changed": "They were changed: they no longer have the hash that was recorded.",
    "unknown": f"Not kept: the tool took secrets, or they were larger than {BODY_ARGUMENT_BYTES // KIB} KiB.",
}


async def _call(service: Service, request: PageRequest) -> Response:
    call_id = request.names["id"]
    try:
        found = await audit_routes.call_records(service.keep, request.caller, call_id, service.index)
    except RequestRefused:
        # A call is recorded once it is decided: it may wait for a person.
        asked = await approval_routes.list_approvals(service.keep, request.caller, limit=_WAITING)
        waiting = next((one for one in asked.items if one.call_id == call_id), None)
        return request.renderer.page(request, "no_call.html", waiting=waiting)
    first = found.records[0].record
    tool = service.keep.try_get(str(first.get("tool", "")))
    has_arguments = found.arguments is not None and found.is_whole
    explained = await _explained(service, request.caller, found)
    kinds = {touch["capability"] for touch in explained.touches} if explained else set()
    grant = service.keep.agents.get(str(first.get("agent")))
    return request.renderer.page(
        request,
        "call.html",
        call=found,
        first=first,
        is_known=tool is not None,
        last=found.records[-1],
        shade=SHADES[found.outcome],
        no_arguments=_NO_ARGUMENTS[found.no_arguments],
        asked_at=next((one.record["asked_at"] for one in found.records if "asked_at" in one.record), None),
        arguments=_json(found.arguments) if has_arguments and tool else "",
        copies=_copies(request.base(service.base), first, found.arguments) if has_arguments else (),
        steps=_steps(found),
        explained=explained,
        held={one["policy"]: one["conditions"] for one in explained.policies} if explained else {},
        holds=[str(one) for one in grant.capabilities if one.kind in kinds] if grant else [],
        highlighted=highlighted,
        has_writes=await has_writes(service, request.caller, call=call_id),
    )


async def _explained(
    service: Service, caller: Caller, found: audit_routes.CallRecords
) -> policy_routes.ExplainedCall | None:
    """The decision on a call that was denied, as the rules are now; None if unknown, or not told."""
    first, last = found.records[0].record, found.records[-1].record
    agent = str(first.get("agent", ""))
    is_denied = found.outcome == "refused" and Code.NOT_PERMITTED in (last.get("codes") or ())
    is_told = caller.has_scope(Scope.POLICIES_READ) and (
        agent == caller.agent or caller.has_scope(Scope.ADMIN)
    )
    is_kept = found.is_whole and isinstance(found.arguments, dict)
    if not (is_denied and is_told and is_kept):
        return None
    body = policy_routes.ExplainBody(tool=str(first["tool"]), arguments=found.arguments, agent=agent)
    explained = await policy_routes.explain_call(service.keep, caller, body)
    if explained.refusal is not None:
        return explained if explained.changes != [explained.refusal["message"]] else None
    # What the call's session had read then may be what denied it, and is not part of this decision.
    return explained if service.keep.authorizer.flow is None else None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A stage that the call reached: how long it took, and what the log has of it."""

    title: str
    said: str
    """Who answered."""
    took: str
    begin: float
    width: float
    is_bad: bool
    is_run: bool
    records: list[audit_routes.RecordView]
    facts: list[list[tuple[str, str]]]
    codes: list[tuple[str, str]]
    policies: list[str]


def _steps(found: audit_routes.CallRecords) -> list[Step]:
    """The stages in order, each with its records; one that the log says nothing of has its time alone."""
    times = {one.stage: one for one in found.stages}
    total = max(sum(one.took_us for one in found.stages), 1)
    held: dict[str, list[audit_routes.RecordView]] = {}
    for one in found.records:
        held.setdefault(_stage_of(one.record), []).append(one)
    last = found.records[-1].record
    steps = []
    for stage in STAGES:
        records, timed = held.get(stage, []), times.get(stage)
        if not records and timed is None:
            continue
        said = [one.record for one in records]
        steps.append(
            Step(
                title=STAGE_WORDS[stage],
                said=next((_answer(one) for one in said if one.get("type") == "Approval"), ""),
                took=duration_text(timed.took_us) if timed else "",
                begin=round(min(timed.began_us / total * _BAR, _BAR - 3), 1) if timed else 0,
                width=round(max(timed.took_us / total * _BAR, 3), 1) if timed else 0,
                is_bad=any(_is_bad(one, last) for one in said),
                is_run=any(one.get("type") == "ToolCompleted" for one in said),
                records=records,
                facts=list(map(_facts, said)),
                codes=[code for one in said for code in _codes(one)],
                policies=[str(one) for record in said for one in record.get("policies") or ()],
            )
        )
    return steps


def _stage_of(record: dict[str, Any]) -> str:
    """The stage that a record tells of; one that ended the call, the last that it measured."""
    if record.get("type") == "ToolInvoked" and record.get("stage_us"):
        return STAGES[len(record["stage_us"]) - 1]
    return _STAGE_OF.get(str(record.get("type")), "run")


class CallCopy(msgspec.Struct, frozen=True):
    """The same call, to be made elsewhere."""

    id: str
    label: str
    text: str


def _copies(base: str, first: dict[str, Any], arguments: Any) -> tuple[CallCopy, ...]:
    """The call for a shell and for Python; whoever uses it fills in a token."""
    url = f"{base}/v1/tools/{quote(str(first.get('tool', '')))}:call"
    body = {"arguments": arguments}
    for key in ("session", "conversation"):
        if first.get(key):
            body[key] = first[key]
    sent = _json(body)
    curl = (
        f'curl {shlex.quote(url)} \\\n  -H "Authorization: Bearer $TOOLKEEP_TOKEN" \\\n'
        f"  -H 'Content-Type: application/json' \\\n  -d {shlex.quote(sent)}"
    )
    python = (
        "import os\n\nimport httpx\n\nanswer = httpx.post(\n"
        f"    {url!r},\n"
        "    headers={'Authorization': f\"Bearer {os.environ['TOOLKEEP_TOKEN']}\"},\n"
        f"    json={body!r},\n)\nprint(answer.json())"
    )
    return CallCopy("as-curl", "Copy as curl", curl), CallCopy("as-python", "Copy as Python", python)


def _json(value: Any) -> str:
    """JSON in which invisible characters are escaped: nobody copies or sends what they do not see."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def _is_bad(record: dict[str, Any], last: dict[str, Any]) -> bool:
    """Whether the call ended at this record, or because of what it checks."""
    if record.get("type") == "CapabilityCheck":
        # Denied by the grant: no policy was evaluated.
        is_denied = last.get("type") == "PolicyDecision" and last.get("decision") == "deny"
        return is_denied and Code.NOT_PERMITTED in (last.get("codes") or ()) and not last.get("policies")
    return record.get("status") == "error" or record.get("decision") == "deny"


def _answer(record: dict[str, Any]) -> str:
    """Who answered, as text."""
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


ROUTES: Final = (page_route("GET", "/ui/calls/{id}", _call, (Scope.AUDIT_READ,), ID),)
