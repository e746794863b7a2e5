"""Agents: what each holds and did, a matrix of what each may do with each tool, and a page for each agent.

The page of an agent lists the tools that it called, then the others; there a confirmed act withdraws and
restores what it holds.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.capability import Capability
from toolkeep.errors import ToolkeepError
from toolkeep.keep.agent_access import Access, Cause, access_of, shown_scope
from toolkeep.server.api import agent_routes, drift_routes, grant_routes
from toolkeep.server.api.statistics import CallCounts
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import RequestRefused, not_found
from toolkeep.server.http.request import Parameter, converted
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service, sees_as
from toolkeep.server.web.fresh_sign_in import confirm_data, page_confirmation
from toolkeep.server.web.web_request import PageRequest, page_route
from toolkeep.stores.api_tokens import Scope
from toolkeep.text.display import shorten_middle

_ROWS: Final = 30
"""Tools of the matrix that are loaded at once: with ten agents about 9 KB."""
_CALLED: Final = 50
"""Tools on the page of an agent that it called, the most called first; a model may call any name."""
_OTHERS: Final = 100
"""Other tools there: each costs a decision, and the matrix has the rest."""
_FOLDED: Final = 6
"""From so many denied tools on, those of a cause are one line there."""
COLUMNS: Final = 8
"""Agents beside each other; of more, one is chosen."""

VERDICTS: Final = {
    "allow": ("allowed", "good"),
    "ask": ("asks", "warn"),
    "deny": ("denied", "denied"),
}
"""The word of each verdict, and the look of its chip."""
_CAUSES: "Final[dict[Cause, str]]" = {
    "policies": "policies unusable",
    "agent": "not declared",
    "withdrawn": "withdrawn",
    "policy": "policy",
    "disabled": "disabled",
    "quarantined": "quarantined",
    "grant": "no grant",
    "permission": "no permission",
}
_SCOPE_CHARS: Final = 16
"""Characters of a scope in a cell; the dialog has it whole."""


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """A tool on the page of an agent."""

    name: str
    tool: RegisteredTool | None
    """None if there is no such tool, as far as the caller may see."""
    access: Access | None
    counts: CallCounts


def beside(project: str, access: Access, most: int = _SCOPE_CHARS) -> str:
    """What stands below the verdict: the cause of a denial, or what the arguments may name."""
    if access.cause is not None:
        return _CAUSES[access.cause]
    scopes = [Capability.read(one) for one in access.limited_to if not one.startswith("no ")]
    named = list(dict.fromkeys(shown_scope(one, project) for one in scopes))
    if not named:
        return "partly" if access.limited_to else ""
    more = f" +{len(named) - 1}" if len(named) > 1 else ""
    word = "in" if scopes[0].kind.startswith("fs.") else "for"
    return f"{word} {shorten_middle(named[0], most)}{more}"


async def _show(service: Service, request: PageRequest) -> Response:
    if request.wants_part:
        part = "parts/access_rows.html" if request.query["cursor"] else "parts/access.html"
        return request.renderer.page(request, part, **await _matrix(service, request))
    data = {**await _matrix(service, request), **await _counted(service, request)}
    reads_log = request.caller.has_scope(Scope.AUDIT_READ)
    is_later = reads_log and not service.drift.has_read
    news = await drift_routes.list_drift(service) if reads_log and not is_later else []
    return request.renderer.page(request, "agents.html", news=news, is_later=is_later, **data)


async def _drift(service: Service, request: PageRequest) -> Response:
    news = await drift_routes.list_drift(service)
    return request.renderer.page(request, "parts/drift.html", news=news)


async def _counts(service: Service, request: PageRequest) -> Response:
    return request.renderer.page(request, "parts/agent_counts.html", **await _counted(service, request))


async def _counted(service: Service, request: PageRequest) -> dict[str, Any]:
    agents = await agent_routes.list_agents(service, request.caller)
    return {"agents": agents, "is_counting": service.statistics.is_counting, "joined": _joined}


def _joined(holds: Sequence[str]) -> list[str]:
    """What an agent holds in words, where it may both read and write something as one."""
    both = {one.removeprefix("read ") for one in holds if one.startswith("read ")}
    both &= {one.removeprefix("write ") for one in holds if one.startswith("write ")}
    separate = [one for one in holds if one.partition(" ")[2] not in both]
    return [*(f"read and write {one}" for one in sorted(both)), *separate]


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
    return await _access(service, request.caller, given, cursor=str(request.query["cursor"]))


async def _access(
    service: Service, caller: Caller, given: Mapping[str, str], *, cursor: str = ""
) -> dict[str, Any]:
    """What `parts/access.html` shows for an `agent` and the words of a `search`; either may be empty."""
    known = agent_routes.visible_agents(service.keep, caller)
    names = [given["agent"]] if given["agent"] else known[:COLUMNS]
    # Only the columns that are shown are decided: of many agents, the others would take most of the time.
    page = await agent_routes.list_access(
        service.keep, caller, names=names, search=given["search"], limit=_ROWS, cursor=cursor
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
        "verdicts": VERDICTS,
        "beside": partial(beside, service.keep.project),
    }


async def _show_agent(service: Service, request: PageRequest) -> Response:
    name = str(request.query["agent"])
    if name not in agent_routes.visible_agents(service.keep, request.caller):
        raise not_found("agent")
    data = await _agent(service, request, name)
    return request.renderer.page(request, "agent.html", **data)


async def _agent(service: Service, request: PageRequest, name: str) -> dict[str, Any]:
    """What the page of an agent shows."""
    (one,) = await asyncio.to_thread(
        agent_routes.views_of, service.keep, [name], service.statistics, service.tokens
    )
    data = await asyncio.to_thread(_tools_of, service, request.caller, name)
    withdrawn = sorted(service.keep.withdrawn.get(name, ()))
    return {
        "one": one,
        "withdrawn": withdrawn,
        "view": None,
        "verdicts": VERDICTS,
        "beside": partial(beside, service.keep.project),
        **data,
        **confirm_data(request),
    }


def _tools_of(service: Service, caller: Caller, agent: str) -> dict[str, Any]:
    """The tools that an agent called, others that it may call, and those that it may not, by cause."""
    keep = service.keep
    counts = service.statistics.by_tool(keep, agent)
    seen = {tool.name: tool for tool in keep.tools(agent=sees_as(caller))}
    problem = keep.authorizer.problem()

    def use(name: str) -> ToolUse:
        tool = seen.get(name)
        access = access_of(keep, agent, tool, problem) if tool else None
        return ToolUse(name=name, tool=tool, access=access, counts=counts.get(name, CallCounts()))

    called = sorted((name for name in counts if name), key=lambda name: (-counts[name].calls, name))
    others = [name for name in islice(seen, _OTHERS) if name not in counts]
    may: list[ToolUse] = []
    denied: dict[str, list[ToolUse]] = {}
    for one in map(use, others):
        if one.access is not None and one.access.cause is not None:
            denied.setdefault(_CAUSES[one.access.cause], []).append(one)
        else:
            may.append(one)
    return {
        "called": list(map(use, called[:_CALLED])),
        "may": sorted(may, key=_is_asked),
        "denied": denied,
        "is_folded": sum(map(len, denied.values())) >= _FOLDED,
        "unlisted": max(0, len(seen) - _OTHERS),
    }


def _is_asked(one: ToolUse) -> bool:
    return one.access is not None and one.access.verdict == "ask"


async def _change(service: Service, request: PageRequest) -> Response:
    """The preview; with `seen`, the change."""
    form = await request.form()
    said = {key: form.get(key) for key in ("agent", "action", "capability", "seen")}
    body = converted(said, grant_routes.GrantBody)
    confirmation = page_confirmation(request, form)
    problem: ToolkeepError | None = None
    try:
        view = await grant_routes.change_grant(service.keep, confirmation, body)
    except RequestRefused as refused:
        if not body.seen:
            raise
        problem = refused
        again = msgspec.structs.replace(body, seen="")
        view = await grant_routes.change_grant(service.keep, confirmation, again)
    data = {**await _agent(service, request, body.agent), "view": view, "problem": problem}
    return request.renderer.part(request, "parts/agent.html", **data)


def _text(name: str, longest: int = 256) -> Parameter:
    return Parameter(name=name, about="", shortest=0, longest=longest, default="")


ROUTES: Final = (
    page_route("GET", "/ui/agents/drift", _drift, (Scope.AUDIT_READ,)),
    page_route("GET", "/ui/agents/counts", _counts, (Scope.POLICIES_READ,)),
    page_route(
        "GET", "/ui/agents/show", _show_agent, (Scope.POLICIES_READ,), Parameter(name="agent", about="")
    ),
    page_route("POST", "/ui/agents:change", _change, (Scope.ADMIN,)),
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
