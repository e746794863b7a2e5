"""Agents: what each holds and did, and a matrix of what each may do with each tool."""

from typing import Any, Final
from urllib.parse import urlencode

from toolkeep.server.api import agent_routes, drift_routes
from toolkeep.server.http.request import Parameter, converted
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service
from toolkeep.server.web.fresh_sign_in import page_confirmation
from toolkeep.server.web.web_request import PageRequest, page_route
from toolkeep.stores.api_tokens import Scope

_ROWS: Final = 20
"""Tools of the matrix that are loaded at once: with ten agents about 6 KB."""
_COLUMNS: Final = 8
"""Agents beside each other; of more, one is chosen."""

_VERDICTS: Final = {
    "allow": ("allowed", "good"),
    "ask": ("asks", "warn"),
    "deny": ("denied", "denied"),
}
"""The word of each verdict, and the look of its chip."""


async def _show(service: Service, request: PageRequest) -> Response:
    if request.wants_part:
        part = "parts/access_rows.html" if request.query["cursor"] else "parts/access.html"
        return request.renderer.page(request, part, **await _matrix(service, request))
    data = {**await _matrix(service, request), **await _counted(service, request)}
    news = await drift_routes.list_drift(service) if request.caller.has_scope(Scope.AUDIT_READ) else []
    return request.renderer.page(request, "agents.html", news=news, **data)


async def _counts(service: Service, request: PageRequest) -> Response:
    return request.renderer.page(request, "parts/agent_counts.html", **await _counted(service, request))


async def _counted(service: Service, request: PageRequest) -> dict[str, Any]:
    agents = await agent_routes.list_agents(service, request.caller)
    return {"agents": agents, "is_counting": service.statistics.is_counting}


async def _seen(service: Service, request: PageRequest) -> Response:
    form = await request.form()
    said = {key: form.get(key) for key in ("agent", "until")}
    body = converted(said, drift_routes.SeenBody)
    confirmed = page_confirmation(request, form)
    await drift_routes.acknowledge(service.keep, confirmed, body.agent, body.until)
    news = await drift_routes.list_drift(service)
    return request.renderer.page(request, "parts/drift.html", news=news, seen=body.agent)


async def _matrix(service: Service, request: PageRequest) -> dict[str, Any]:
    given = {name: str(request.query[name]) for name in ("agent", "search")}
    known = agent_routes.visible_agents(service.keep, request.caller)
    names = [given["agent"]] if given["agent"] else known[:_COLUMNS]
    cursor = str(request.query["cursor"])
    # Only the columns that are shown are decided: of many agents, the others would take most of the time.
    page = await agent_routes.list_access(
        service.keep, request.caller, names=names, search=given["search"], limit=_ROWS, cursor=cursor
    )
    more = ""
    if page.next:
        more = "/ui/agents?" + urlencode({**{k: v for k, v in given.items() if v}, "cursor": page.next})
    return {
        "rows": page.items,
        "columns": names,
        "known": known,
        "filters": given,
        "more": more,
        "verdicts": _VERDICTS,
    }


def _text(name: str, longest: int = 256) -> Parameter:
    return Parameter(name=name, about="", shortest=0, longest=longest, default="")


ROUTES: Final = (
    page_route("GET", "/ui/agents/counts", _counts, (Scope.POLICIES_READ,)),
    page_route("POST", "/ui/agents:seen", _seen, (Scope.ADMIN,)),
    page_route(
        "GET",
        "/ui/agents",
        _show,
        (Scope.POLICIES_READ,),
        *map(_text, ("agent", "search")),
        _text("cursor", 1024),
    ),
)
