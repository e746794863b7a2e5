"""The tool list, and one tool with its calls, parameters, versions and provider formats."""

import asyncio
from collections import Counter
from functools import partial
from typing import Any, Final, get_args
from urllib.parse import urlencode

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.tool import SourceKind
from toolkeep.definitions.vocabulary import Category, Danger, Tier, ToolState
from toolkeep.errors import NotAccepted
from toolkeep.keep.keep import Keep
from toolkeep.limits import PAGE
from toolkeep.registry.tiers import ALLOWANCES, BUILT_INS, includes_built_in
from toolkeep.registry.tool_provider import STORE
from toolkeep.server.api import agent_routes, audit_routes, definition_routes, review_routes, tool_routes
from toolkeep.server.api.common_parameters import NAME
from toolkeep.server.api.recorded_calls import CallFilters
from toolkeep.server.api.statistics import CallCounts
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.server.http.request import Parameter
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service, sees_as
from toolkeep.server.web.agents_page import COLUMNS, VERDICTS, beside
from toolkeep.server.web.bulk_page import ACTIONS
from toolkeep.server.web.flow_page import flow_data
from toolkeep.server.web.fresh_sign_in import confirm_data, page_confirmation
from toolkeep.server.web.schema_form import every_field, fields_of
from toolkeep.server.web.try_tool_page import Attempt, attempt_data
from toolkeep.server.web.web_request import PageRequest, page_route
from toolkeep.stores.api_tokens import Scope

_FACETS: Final = (
    ("category", "Category", tuple(c.value for c in Category)),
    ("danger", "Danger", tuple(d.value for d in Danger)),
    ("source", "Source", get_args(SourceKind)),
    ("state", "State", tuple(s.value for s in ToolState)),
)
_SORTS: Final = ("", "calls")
"""What waits for review first, then by category and name, or by relevance; or the most called first."""
_SHOWN: Final = PAGE // 2
_LATEST: Final = 5
"""Calls on the page of a tool: few, since the form to try it stands below."""
_PROVIDERS: Final = {
    "anthropic": "Anthropic",
    "openai": "OpenAI",
    "openai-responses": "Responses",
    "gemini": "Gemini",
    "bedrock": "Bedrock",
    "mistral": "Mistral",
    "cohere": "Cohere",
    "ollama": "Ollama",
    "mcp": "MCP",
    "json-schema": "JSON Schema",
}
"""Those that have a tab; `/v1` has them all."""


async def _list(service: Service, request: PageRequest) -> Response:
    query = request.query
    given = {name: query[name] or None for name in tool_routes.Filters.__struct_fields__}
    filters = tool_routes.Filters(**given)
    cursor = query["cursor"]
    counts: dict[str, CallCounts] | None = None
    if request.caller.has_scope(Scope.AUDIT_READ):
        counts = await asyncio.to_thread(service.statistics.by_tool, service.keep)
    sort = str(query["sort"] or "") if counts is not None else ""
    # In a thread: the first search over many tools builds an index, which takes seconds.
    found = await asyncio.to_thread(
        tool_routes.list_tools,
        service.keep,
        request.caller,
        filters,
        limit=_SHOWN,
        cursor=cursor or None,
        calls={name: one.calls for name, one in counts.items()} if counts is not None and sort else None,
        is_review_first=True,
    )
    kept = {name: value for name, value in given.items() if value}
    more = ""
    if found.next:
        more = _address({**kept, "sort": sort, "cursor": found.next})
    is_last = not found.next and not kept
    data: dict[str, Any] = {
        "tools": found.items,
        "awaiting": {one.name for one in found.items if tool_routes.awaits_review(service.keep, one)},
        "counts": counts,
        "none_yet": CallCounts(),
        "is_counting": counts is not None and service.statistics.is_counting,
        "sort": sort,
        "sorted_by": {one: _address({**kept, "sort": one}) for one in _SORTS},
        "more": more,
        "is_filtered": bool(kept),
        "locked": locked_built_ins(service.keep) if is_last else [],
        "lock": custom_lock(service.keep),
        "actions": [one for one in ACTIONS if request.caller.has_scope(one[2])],
        "levels": [level.value for level in Danger],
    }
    if request.wants_part:
        part = "parts/tool_rows.html" if cursor else "parts/tools.html"
        return request.renderer.page(request, part, **data)
    every = service.keep.tools(agent=sees_as(request.caller))
    return request.renderer.page(
        request,
        "tools.html",
        **data,
        facets=_FACETS,
        filters={name: value or "" for name, value in given.items()},
        total=len(every),
        off=Counter(tool.state.value for tool in every if not tool.is_enabled),
        new=may_create(service.keep, request.caller),
    )


def _address(query: dict[str, str]) -> str:
    said = urlencode({name: value for name, value in query.items() if value})
    return f"/ui/tools?{said}" if said else "/ui/tools"


def may_create(keep: Keep, caller: Caller) -> str:
    """Whether the caller may create definitions: `open`, `locked` by the tier, or `closed`."""
    if not caller.has_scope(Scope.TOOLS_WRITE) or not keep.allows_definitions:
        return "closed"
    return "open" if custom_lock(keep)["is_open"] else "locked"


def custom_lock(keep: Keep) -> dict[str, Any]:
    """Whether the tier allows one more custom definition, and which tier would."""
    held = sum(tool.is_custom for tool in keep.tools())
    needed = next(tier for tier in Tier if _takes(tier, held))
    return {"tier": keep.tier.value, "needed": needed.value, "is_open": _takes(keep.tier, held)}


def _takes(tier: Tier, held: int) -> bool:
    most = ALLOWANCES[tier].custom
    return most is None or held < most


def locked_built_ins(keep: Keep) -> list[tuple[str, str]]:
    """Built-in tools that the tier does not include, with the first tier that does."""
    missing = [name for name in BUILT_INS if not includes_built_in(keep.tier, name)]
    return [(name, next(tier.value for tier in Tier if includes_built_in(tier, name))) for name in missing]


def review_data(keep: Keep, request: PageRequest, tool: RegisteredTool, **more: Any) -> dict[str, Any]:
    """What the page shows of a quarantined tool: the difference, to those who may accept it."""
    is_held = tool.state is ToolState.QUARANTINED
    waiting = review_routes.pending_review(keep, request.caller, tool.name) if is_held else None
    return {
        "waiting": waiting,
        "review": waiting if request.caller.has_scope(Scope.ADMIN) else None,
        "tool": tool_routes.summary(tool),
        "problem": None,
        **confirm_data(request),
        **more,
    }


async def _accept(service: Service, request: PageRequest) -> Response:
    form, name = await request.form(), request.names["name"]
    said = page_confirmation(request, form)
    try:
        await review_routes.accept_tool(service.keep, said, name, form.get("hash"))
    except (RequestRefused, NotAccepted) as refused:
        tool = tool_routes.find_tool(service.keep, request.caller, name)
        data = review_data(service.keep, request, tool, problem=refused)
        return request.renderer.part(request, "parts/review.html", **data)
    return _again()


async def _reject(service: Service, request: PageRequest) -> Response:
    form = await request.form()
    said = page_confirmation(request, form)
    await review_routes.reject_tool(service.keep, said, request.names["name"], form.get("hash"))
    return _again()


async def _show(service: Service, request: PageRequest) -> Response:
    keep, caller, name = service.keep, request.caller, request.names["name"]
    view = tool_routes.show_tool(keep, caller, name)
    tool = tool_routes.find_tool(keep, caller, name)
    fields = fields_of(tool.definition.parameters, view.definition["parameters"])
    is_stored, is_run = tool.provider == STORE, tool.runner is not None
    may_remove = is_stored and caller.has_scope(Scope.TOOLS_WRITE) and keep.allows_definitions
    return request.renderer.page(
        request,
        "tool.html",
        view=view,
        **review_data(keep, request, tool),
        answers=tool_routes.visible_tool(keep, caller, tool.name),
        definition=view.definition,
        returns=_returns(view.definition),
        fields=list(every_field(fields)),
        forms=[
            (key, _PROVIDERS[key], form)
            for key, form in tool_routes.provider_forms(keep, caller, name).items()
            if key in _PROVIDERS
        ],
        constraints=tool.definition.constraints,
        may_run_unconfined=keep.may_run_unconfined(tool),
        is_stored=is_stored,
        may_write=caller.has_scope(Scope.TOOLS_WRITE),
        may_edit=may_remove and definition_routes.may_see_whole(caller, tool.definition, is_run=is_run),
        may_remove=may_remove,
        has_form=caller.has_scope(Scope.CALL) and tool.state is not ToolState.QUARANTINED,
        **attempt_data(Attempt(tool=tool, fields=fields)),
        **flow_data(keep, caller, tool),
        **await _calls_of(service, caller, tool.name),
        **await _access_to(keep, caller, tool),
    )


async def _access_to(keep: Keep, caller: Caller, tool: RegisteredTool) -> dict[str, Any]:
    """Which agents may call a tool, for those who may read policies."""
    if not caller.has_scope(Scope.POLICIES_READ):
        return {"access": {}}
    access = await agent_routes.access_to(keep, caller, tool, COLUMNS)
    return {
        "access": access,
        "more_agents": len(agent_routes.visible_agents(keep, caller)) - len(access),
        "verdicts": VERDICTS,
        "beside": partial(beside, keep.project),
    }


async def _calls_of(service: Service, caller: Caller, name: str) -> dict[str, Any]:
    """The newest calls of a tool, and how many there were, for those who may read the log."""
    if not caller.has_scope(Scope.AUDIT_READ):
        return {"counts": None}
    counts = await asyncio.to_thread(service.statistics.by_tool, service.keep)
    found = await audit_routes.list_calls(
        service.keep, caller, CallFilters(tool=name), limit=_LATEST, index=service.index, tells_why=True
    )
    return {
        "counts": counts.get(name, CallCounts()),
        "is_counting": service.statistics.is_counting,
        "latest": [one for one in found.items if one.newest.call],
        "is_whole": found.next is None,
    }


def _returns(definition: dict[str, Any]) -> str:
    """The type of its result, as far as it is declared."""
    schema = definition.get("output_schema")
    kind = schema.get("type", "") if isinstance(schema, dict) else ""
    return " | ".join(kind) if isinstance(kind, list) else str(kind or definition.get("result_type", ""))


async def _enable(service: Service, request: PageRequest) -> Response:
    await tool_routes.switched(service, request, enabled=True)
    return _again()


async def _disable(service: Service, request: PageRequest) -> Response:
    await tool_routes.switched(service, request, enabled=False)
    return _again()


def _again() -> Response:
    return Response(200, b"", b"text/plain", ((b"hx-refresh", b"true"),))


def _any_of(name: str, choices: tuple[str, ...]) -> Parameter:
    return Parameter(name=name, about="", choices=("", *choices), shortest=0)


ROUTES: Final = (
    page_route(
        "GET",
        "/ui/tools",
        _list,
        (Scope.TOOLS_READ,),
        *(_any_of(name, choices) for name, _, choices in _FACETS),
        _any_of("sort", _SORTS[1:]),
        Parameter(name="search", about="", shortest=0, longest=1024),
        Parameter(name="cursor", about="", shortest=0, longest=1024),
    ),
    page_route("GET", "/ui/tools/{name}", _show, (Scope.TOOLS_READ,), NAME),
    page_route("POST", "/ui/tools/{name}:accept", _accept, (Scope.ADMIN,), NAME),
    page_route("POST", "/ui/tools/{name}:reject", _reject, (Scope.ADMIN,), NAME),
    page_route("POST", "/ui/tools/{name}:enable", _enable, (Scope.TOOLS_WRITE,), NAME),
    page_route("POST", "/ui/tools/{name}:disable", _disable, (Scope.TOOLS_WRITE,), NAME),
)
