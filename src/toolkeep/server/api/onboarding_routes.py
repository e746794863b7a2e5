"""The first steps with a keep: which are done, and how each MCP client is connected.

A step is done when the registry, the tokens or the log say so; nobody ticks it.
"""

import asyncio
import sys
from pathlib import Path
from typing import Final, Literal

import msgspec

from toolkeep.keep.keep import Keep
from toolkeep.mcp_server.client_entries import (
    CLIENTS,
    MODULE,
    McpClient,
    address_entry,
    entry_text,
    program_entry,
)
from toolkeep.policy.cedar_parser import OURS
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import not_found
from toolkeep.server.http.request import Parameter, Request
from toolkeep.server.http.responses import Response, json_response
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import Scope

ENTRY: Final = "toolkeep"
"""The name of the entry in a client, as `toolkeep install` calls it."""
TOKEN: Final = "TOKEN"  # noqa: S105 -- stands for a token
CLIENT_AGENT: Final = "mcp-local"
_CLIENT_SCOPES: Final = frozenset((Scope.MCP, Scope.CALL))


class OnboardingStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step."""

    step: Literal["tool", "client", "call", "rule"]
    is_done: bool
    call: str = ""
    """The call that shows it."""


class OnboardingView(msgspec.Struct, frozen=True, kw_only=True):
    """The first steps with a keep."""

    steps: list[OnboardingStep]
    is_done: bool


class ClientView(msgspec.Struct, frozen=True, kw_only=True):
    """How an MCP client is connected to this server."""

    client: str
    title: str
    file: str
    """Its configuration file: relative to the project, or in the user's home."""
    text: str
    """What stands in it, with a token or the word TOKEN."""
    takes_token: bool
    """Whether it connects over the network; else it starts `toolkeep mcp` on this machine."""
    is_in_project: bool
    """Whether the file lies in the project, where it may be committed."""
    note: str


async def onboarding(service: Service) -> OnboardingView:
    """Which of the first steps are done."""
    return await asyncio.to_thread(_onboarding, service)


def _onboarding(service: Service) -> OnboardingView:
    keep, past = service.keep, service.milestones.read(service.keep)
    has_tool = any(not tool.is_built_in for tool in keep.tools())
    used = any(
        token.last_used_at and set(token.scopes) & set(_CLIENT_SCOPES) for token in service.tokens.list()
    )
    steps = [
        OnboardingStep(step="tool", is_done=has_tool),
        OnboardingStep(step="client", is_done=used or bool(past.client_call), call=past.client_call),
        OnboardingStep(step="call", is_done=bool(past.ok_call), call=past.ok_call),
        OnboardingStep(
            step="rule", is_done=bool(past.answered_call) or _has_policies(keep), call=past.answered_call
        ),
    ]
    return OnboardingView(steps=steps, is_done=all(one.is_done for one in steps))


def _has_policies(keep: Keep) -> bool:
    policies = keep.authorizer.active_policies.engine.policies.policies
    return any(not policy.id.startswith(OURS) for policy in policies)


def client_agents(keep: Keep, caller: Caller) -> list[str]:
    """The agents whose tokens a client may get, the usual one first."""
    if not caller.has_scope(Scope.ADMIN):
        return [caller.agent]
    return sorted(keep.agents, key=lambda name: (name != CLIENT_AGENT, name))


def list_clients(keep: Keep, base: str, agent: str, token: str = TOKEN) -> list[ClientView]:
    """Every client that `toolkeep install` knows, with its configuration for this server."""
    return [_client(name, CLIENTS[name], keep, base, agent, token) for name in sorted(CLIENTS)]


def _client(name: str, client: McpClient, keep: Keep, base: str, agent: str, token: str) -> ClientView:
    project = Path(keep.project)
    if client.address_key:
        entry = address_entry(client, f"{base}/mcp", token)
    else:
        words = [sys.executable, *MODULE, "mcp", "--project", str(project), "--agent", agent]
        entry = program_entry(client, words)
    path = client.path(project)
    is_in_project = bool(client.folder)
    shown = path.relative_to(project) if is_in_project else Path("~") / path.relative_to(Path.home())
    return ClientView(
        client=name,
        title=client.title,
        file=str(shown),
        text=entry_text(client, ENTRY, entry),
        takes_token=bool(client.address_key),
        is_in_project=is_in_project,
        note=client.note,
    )


async def _show(service: Service, request: Request) -> Response:
    return json_response(await onboarding(service))


async def _clients(service: Service, request: Request) -> Response:
    agents = client_agents(service.keep, request.caller)
    agent = str(request.query["agent"]) or agents[0]
    if agent not in agents:
        raise not_found("agent")
    return json_response(list_clients(service.keep, request.base(service.base), agent))


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/onboarding",
        name="showOnboarding",
        about="The first steps with this keep, and which of them are done.",
        handler=_show,
        scopes=(Scope.AUDIT_READ,),
        tag="about",
        gives={200: ResponseSpec(about="The steps.", kind=OnboardingView)},
    ),
    Route(
        method="GET",
        path="/v1/clients",
        name="listClients",
        about="The configuration of each MCP client for this server; put a token in the place of TOKEN.",
        handler=_clients,
        scopes=(Scope.TOKENS,),
        tag="about",
        parameters=(
            Parameter(name="agent", about="Of clients that start it.", shortest=0, longest=64, default=""),
        ),
        gives={200: ResponseSpec(about="The clients, by name.", kind=list[ClientView])},
        problems=(404,),
    ),
)
