"""Sessions: a list of the newest, and the timeline of one with what its model was shown."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from toolkeep.approval.question_text import name
from toolkeep.audit.call_timeline import CHANGE_WORDS, TimelineCall
from toolkeep.audit.call_verdict import Outcome, duration_text
from toolkeep.flow.tracker import REMOTE
from toolkeep.limits import NAMED_CHARS
from toolkeep.server.api import approval_routes, session_timeline
from toolkeep.server.http.request import Parameter
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service
from toolkeep.server.web.undo_page import has_writes
from toolkeep.server.web.web_request import PageRequest, page_route
from toolkeep.stores.api_tokens import Scope

_WAITING: Final = 100
"""Approval requests among which those of a session are looked for."""

_FOLDED: Final = 4
"""So many calls of one tool that succeeded one after the other are one line, which opens."""

SHADES: "Final[dict[Outcome, str]]" = {
    "ok": "good", "repeated": "good", "failed": "bad", "unknown": "bad",
    "refused": "warn", "pending": "warn", "under way": "warn",
}  # fmt: skip
"""The color of each outcome."""


async def _list(service: Service, request: PageRequest) -> Response:
    agent = str(request.query["agent"])
    found = await session_timeline.list_sessions(
        service.keep, request.caller, agent=agent, index=service.index
    )
    known = sorted({*service.keep.agents, *(one.agent for one in found)})
    return request.renderer.page(request, "sessions.html", sessions=found, agent=agent, known=known)


async def _show(service: Service, request: PageRequest) -> Response:
    given = {key: str(request.query[key]) for key in ("agent", "session", "conversation")}
    cursor = str(request.query["cursor"]) or None
    found = await session_timeline.show_session(
        service.keep,
        request.caller,
        given["agent"],
        session=given["session"],
        conversation=given["conversation"],
        cursor=cursor,
        index=service.index,
    )
    kept = {key: value for key, value in given.items() if value}
    data: dict[str, Any] = {
        "runs": _runs([Row(call=one) for one in found.items]),
        "earlier": "/ui/sessions/show?" + urlencode({**kept, "cursor": found.next}) if found.next else "",
        "shades": SHADES,
        "changes": CHANGE_WORDS,
    }
    if request.wants_part and cursor:
        return request.renderer.page(request, "parts/timeline_calls.html", **data)
    return request.renderer.page(
        request,
        "session.html",
        **data,
        timeline=found,
        owner=_owner_words(found.state.owner) if found.state else "",
        took=duration_text(found.totals.took_us),
        lasted=_lasted(found.items),
        waiting=await _waiting(service, request, **given),
        query=urlencode({**kept, "agent": found.agent}),
        has_writes=await has_writes(
            service, request.caller, session=found.session or found.conversation, agent=found.agent
        ),
    )


async def _waiting(
    service: Service, request: PageRequest, *, agent: str, session: str, conversation: str
) -> list[approval_routes.ApprovalView]:
    """The calls of the session that wait for a person, if the caller may answer them."""
    if not request.caller.has_scope(Scope.APPROVE):
        return []
    asked = await approval_routes.list_approvals(service.keep, request.caller, limit=_WAITING)
    found = [one for one in asked.items if one.agent == agent]
    return [one for one in found if (session in ("", one.session) and conversation in ("", one.conversation))]


def _lasted(calls: Sequence[TimelineCall]) -> str:
    """How long after the first call the last one was asked for, as text; empty below a second."""
    times = [datetime.fromisoformat(one.time) for one in calls if one.time]
    lasted = max(times) - min(times) if times else timedelta()
    return duration_text(lasted // timedelta(microseconds=1)) if lasted >= timedelta(seconds=1) else ""


def _owner_words(key: str) -> str:
    """Whose state it is: a remote caller's belongs to its agent, whatever session it names."""
    agent, _, rest = key.partition("\n")
    kind, _, owner = rest.partition("\n")
    if kind != REMOTE or owner.startswith("session "):
        return "this session"
    return f"all calls of {name(agent)} over {name(owner)}, whatever session they name"


def _runs(rows: list["Row"]) -> list[list["Row"]]:
    """The rows in order; alike ones that follow each other are together, if there are many."""
    runs: list[list[Row]] = []
    for _, alike in groupby(rows, key=lambda row: row.call.tool if row.is_plain else row):
        run = list(alike)
        runs += [run] if len(run) >= _FOLDED else [[row] for row in run]
    return runs


class Row(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A call in the timeline."""

    call: TimelineCall

    @property
    def is_plain(self) -> bool:
        """Whether it succeeded, no person was asked, and the session was the same before."""
        return self.call.outcome == "ok" and not self.call.answer and not self.call.changes

    @property
    def took(self) -> str:
        """How long it took, as text."""
        return duration_text(self.call.took_us) if self.call.took_us else ""

    @property
    def origins(self) -> list[tuple[str, str]]:
        """Where its arguments came from, as text."""
        facts = self.call.facts
        return [(key, ", ".join(one)) for key, one in facts.origins.items()] if facts else []


def _text(key: str, longest: int = NAMED_CHARS) -> Parameter:
    return Parameter(name=key, about="", shortest=0, longest=longest, default="")


_SCOPES: Final = (Scope.AUDIT_READ,)

ROUTES: Final = (
    page_route("GET", "/ui/sessions", _list, _SCOPES, _text("agent")),
    page_route(
        "GET",
        "/ui/sessions/show",
        _show,
        _SCOPES,
        *map(_text, ("agent", "session", "conversation")),
        _text("cursor", 1024),
    ),
)
