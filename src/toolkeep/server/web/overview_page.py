"""The overview: call statistics, pending approvals, what needs attention; workers; the status line."""

from typing import Any, Final

from toolkeep.server.api import approval_routes, audit_routes
from toolkeep.server.api.routes import listed_workers
from toolkeep.server.api.statistics import PERIODS, StatisticsView
from toolkeep.server.api.status_routes import StatusView, overview, status_of
from toolkeep.server.http.problem_details import not_found
from toolkeep.server.http.request import Parameter
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service
from toolkeep.server.web.cookie_sessions import PERSON, Session
from toolkeep.server.web.start_page import start_data
from toolkeep.server.web.templates_env import WORKERS, places
from toolkeep.server.web.web_request import PageRequest, page_route
from toolkeep.stores.api_tokens import Scope

_NAMES: Final = {1: "1 hour", 6: "6 hours", 24: "24 hours", 168: "7 days"}
_LATEST: Final = 5
"""Refused and failed calls that are shown: as many as stand beside a chart."""
_AREAS: Final = (
    Scope.AUDIT_READ,
    Scope.APPROVE,
    Scope.TOOLS_READ,
    Scope.POLICIES_READ,
    Scope.TOKENS,
    Scope.CALL,
)


async def _overview(service: Service, request: PageRequest) -> Response:
    if not request.caller.has_scope(Scope.AUDIT_READ):
        # A token that may not read the log starts at the first page that it may see.
        first = next((one.path for one in places(request.caller)), "/ui/sign-in")
        return Response(303, b"", b"text/plain", ((b"location", first.encode()),))
    keep = service.keep
    view = await service.statistics.view(keep, int(request.query["hours"] or 0) or None)
    service.index.prepare(keep.record.log)  # a search often follows
    inbox: approval_routes.Inbox | None = None
    if request.caller.has_scope(Scope.APPROVE):
        inbox = await approval_routes.inbox(keep, request.caller, limit=3)
    start = None if request.wants_part else await start_data(service, request)
    return request.renderer.page(
        request,
        "overview.html" if not request.wants_part else "parts/overview.html",
        view=view,
        calls_chart=_calls(view),
        latency_chart=_latency(view),
        periods=[(one, _NAMES[one]) for one in PERIODS],
        hours=view.hours,
        latest=await audit_routes.latest_unsuccessful(
            service, request.caller, hours=view.hours, limit=_LATEST
        ),
        tools={one.name for one in view.by_tool if keep.try_get(one.name)},
        agents=keep.agents if request.caller.has_scope(Scope.POLICIES_READ) else (),
        start=start if start and not start["onboarding"].is_done else None,
        inbox=inbox,
        found=await overview(keep),
        programs=keep.persistent_programs(),
    )


async def _workers(service: Service, request: PageRequest) -> Response:
    template = "parts/workers.html" if request.wants_part else "workers.html"
    return request.renderer.page(request, template, workers=listed_workers(service.keep))


def status_of_session(service: Service, session: Session) -> StatusView:
    """What the status line tells the person of a session."""
    return status_of(service, session.caller, is_by_link=session.approver.agent == PERSON)


async def _status(service: Service, request: PageRequest) -> Response:
    if request.session is None:
        raise not_found("page")
    line = status_of_session(service, request.session)
    return request.renderer.page(request, "parts/status.html", line=line)


def _calls(view: StatisticsView) -> dict[str, Any]:
    return {
        "times": view.times,
        "lines": [
            {"label": "succeeded", "kind": "ok", "status": "ok", "values": view.ok},
            {"label": "refused", "kind": "refused", "status": "refused", "values": view.refused},
            {"label": "failed", "kind": "failed", "status": "error", "values": view.failed},
        ],
    }


def _latency(view: StatisticsView) -> dict[str, Any]:
    return {
        "times": view.times,
        "lines": [
            {"label": "median", "kind": "p50", "values": view.p50_ms},
            {"label": "p95", "kind": "p95", "values": view.p95_ms},
        ],
    }


_HOURS: Final = Parameter(name="hours", about="", choices=("", *map(str, PERIODS)), shortest=0, default="")

ROUTES: Final = (
    page_route("GET", "/ui/", _overview, _AREAS, _HOURS),
    page_route("GET", WORKERS, _workers, (Scope.AUDIT_READ,)),
    page_route("GET", "/ui/status", _status, tuple(Scope)),
)
