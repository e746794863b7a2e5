"""Agents over HTTP: what each holds, what it did, and what it may do with each tool.

With `admin` all agents, else the caller's own: what another agent may do is nobody else's to know.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.host.clock import iso
from toolkeep.keep.agent_access import Access, access_of, capability_words
from toolkeep.keep.keep import Keep
from toolkeep.limits import PAGE
from toolkeep.server.api import tool_routes
from toolkeep.server.api.common_parameters import CURSOR, LIMIT
from toolkeep.server.api.pagination import Page
from toolkeep.server.api.statistics import Statistics
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import not_found
from toolkeep.server.http.request import Parameter, Request
from toolkeep.server.http.responses import Response, json_response
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import Scope, Tokens


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """One agent: what it holds, and what it did over the last week."""

    agent: str
    capabilities: list[str]
    permissions: list[str]
    holds: list[str]
    """The capabilities in words."""
    withdrawn: list[str]
    calls: int
    refused: int
    failed: int
    last_call_at: str | None
    tokens: int
    """Valid tokens of the agent."""
    rules: int
    """Rules by which its calls are not asked about."""


class ToolAccess(msgspec.Struct, frozen=True, kw_only=True):
    """What each agent may do with one tool."""

    tool: str
    danger: str
    state: str
    agents: dict[str, Access]


class AccessPage(Page, frozen=True, kw_only=True):
    """Some of the tools."""

    items: list[ToolAccess]


async def list_agents(service: Service, caller: Caller) -> list[AgentView]:
    """The agents that the caller may know, by name."""
    names = visible_agents(service.keep, caller)
    return await asyncio.to_thread(views_of, service.keep, names, service.statistics, service.tokens)


def visible_agents(keep: Keep, caller: Caller) -> list[str]:
    """The names of the agents that the caller may know."""
    if not caller.has_scope(Scope.ADMIN):
        return [caller.agent]
    return sorted({*keep.agents, *keep.withdrawn})


def views_of(keep: Keep, names: Sequence[str], statistics: Statistics, stored: Tokens) -> list[AgentView]:
    """The agents of these names."""
    now, counts = time.time(), statistics.by_agent(keep)
    tokens = [token.agent for token in stored.list() if token.is_live(now)]
    rules = [rule.agent for rule in keep.record.approvals.rules()]
    found = []
    for name in names:
        held, count = keep.agents.get(name), counts.get(name)
        last = count.last_call_at if count else 0.0
        capabilities = held.capabilities if held else ()
        found.append(
            AgentView(
                agent=name,
                capabilities=list(map(str, capabilities)),
                permissions=list(held.permissions) if held else [],
                holds=[capability_words(one, keep.project) for one in capabilities],
                withdrawn=sorted(one or "everything" for one in keep.withdrawn.get(name, ())),
                calls=count.calls if count else 0,
                refused=count.refused if count else 0,
                failed=count.failed if count else 0,
                last_call_at=iso(last) if last else None,
                tokens=tokens.count(name),
                rules=rules.count(name),
            )
        )
    return found


async def list_access(
    keep: Keep,
    caller: Caller,
    *,
    names: Sequence[str] = (),
    search: str = "",
    limit: int = PAGE,
    cursor: str = "",
) -> AccessPage:
    """What agents may do with some of the tools; without `names`, all that the caller may know."""
    known = visible_agents(keep, caller)
    if any(name not in known for name in names):
        raise not_found("agent")
    return await asyncio.to_thread(_access, keep, caller, names or known, search, limit, cursor)


async def access_to(keep: Keep, caller: Caller, tool: RegisteredTool, most: int) -> dict[str, Access]:
    """What agents may do with a tool: the first ones of those that the caller may know."""

    def decided() -> dict[str, Access]:
        problem = keep.authorizer.problem()
        return {name: access_of(keep, name, tool, problem) for name in visible_agents(keep, caller)[:most]}

    return await asyncio.to_thread(decided)


def _access(
    keep: Keep, caller: Caller, names: Sequence[str], search: str, limit: int, cursor: str
) -> AccessPage:
    filters = tool_routes.Filters(search=search or None)
    page = tool_routes.list_tools(keep, caller, filters, limit=limit, cursor=cursor or None)
    problem = keep.authorizer.problem()

    def row(tool: RegisteredTool) -> ToolAccess:
        return ToolAccess(
            tool=tool.name,
            danger=tool.danger.value,
            state=tool.state.value,
            agents={name: access_of(keep, name, tool, problem) for name in names},
        )

    found = [keep.try_get(one.name) for one in page.items]
    return AccessPage(items=[row(tool) for tool in found if tool is not None], next=page.next)


async def _list(service: Service, request: Request) -> Response:
    return json_response(await list_agents(service, request.caller))


async def _matrix(service: Service, request: Request) -> Response:
    query = request.query
    return json_response(
        await list_access(
            service.keep,
            request.caller,
            names=[str(query["agent"])] if query["agent"] else (),
            search=str(query["search"] or ""),
            limit=int(query["limit"]),
            cursor=str(query["cursor"] or ""),
        )
    )


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/agents",
        name="listAgents",
        about="What agents hold and what they did over the last week; with admin all, else the token's own.",
        handler=_list,
        scopes=(Scope.POLICIES_READ,),
        tag="policies",
        gives={200: ResponseSpec(about="The agents.", kind=list[AgentView])},
    ),
    Route(
        method="GET",
        path="/v1/access",
        name="listAccess",
        about="For each tool and agent whether calls are allowed, ask a person or are denied, and why.",
        handler=_matrix,
        scopes=(Scope.POLICIES_READ,),
        tag="policies",
        parameters=(
            Parameter(name="agent", about="One agent; by default all that the token may know.", longest=256),
            Parameter(name="search", about="Words in names and descriptions of tools.", longest=256),
            LIMIT,
            CURSOR,
        ),
        gives={200: ResponseSpec(about="Some of the tools.", kind=AccessPage)},
        problems=(404,),
    ),
)
