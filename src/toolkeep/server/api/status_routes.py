"""The status line of the page: who the caller is, what they may do, how far the log is verified.

And the overview: how many tools there are, and what needs attention.
"""

import asyncio
from typing import Final

import msgspec

from toolkeep.keep.keep import Keep
from toolkeep.server.api.tool_routes import awaits_review
from toolkeep.server.api.verification import Verified
from toolkeep.server.http.bearer_auth import SCOPES, Caller
from toolkeep.server.http.request import Request
from toolkeep.server.http.responses import Response, json_response
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import Scope, roles_of
from toolkeep.version import __version__


class StatusView(msgspec.Struct, frozen=True, kw_only=True):
    """The server and the caller."""

    version: str
    agent: str
    token: str
    """The name of the caller's token; empty for a person who signed in by a link or with their provider."""
    subject: str
    """The subject whom an identity provider vouches for; else empty."""
    scopes: list[str]
    roles: list[str]
    """The widest roles whose scopes the caller holds."""
    may: list[str]
    """What each scope allows, in words."""
    reads_log: bool
    verified: Verified | None
    """The last verification by this server; null if there was none, or the caller may not read the log."""


def status_of(service: Service, caller: Caller, *, is_by_link: bool = False) -> StatusView:
    """The status of the server for a caller."""
    reads_log = caller.has_scope(Scope.AUDIT_READ)
    return StatusView(
        version=__version__,
        agent=caller.agent,
        token="" if is_by_link or caller.identity else caller.name,
        subject=caller.identity.subject if caller.identity else "",
        scopes=[scope.value for scope in caller.scopes],
        roles=roles_of(caller.scopes),
        may=[SCOPES[scope] for scope in (Scope if caller.has_scope(Scope.ADMIN) else caller.scopes)],
        reads_log=reads_log,
        verified=service.verification.last if reads_log else None,
    )


class OverviewView(msgspec.Struct, frozen=True, kw_only=True):
    """The keep, and what a person has to look after beside the calls that wait for approval."""

    tools: int
    tier: str
    skipped: list[str]
    """Tools, or whole providers, that could not be loaded; `toolkeep list` says why."""
    held_back: int
    """How many configuration files count for nothing until a person accepts them."""
    quarantined: list[str]
    """Tools that changed at their source, and that nobody keeps out."""


async def overview(keep: Keep) -> OverviewView:
    """The keep as it is now."""
    every = await asyncio.to_thread(keep.tools)
    return OverviewView(
        tools=len(every),
        tier=keep.tier.value,
        skipped=[one.tool or one.provider for one in keep.start_up.skipped],
        held_back=len(keep.start_up.held_back),
        quarantined=[tool.name for tool in every if awaits_review(keep, tool)],
    )


async def _overview(service: Service, request: Request) -> Response:
    return json_response(await overview(service.keep))


async def _status(service: Service, request: Request) -> Response:
    return json_response(status_of(service, request.caller))


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/status",
        name="showStatus",
        about="The server's version, the token of this request, and the last verification of the log.",
        handler=_status,
        scopes=tuple(Scope),
        tag="about",
        gives={200: ResponseSpec(about="The status.", kind=StatusView)},
    ),
    Route(
        method="GET",
        path="/v1/overview",
        name="showOverview",
        about="How many tools there are, which are missing or quarantined, and what is not accepted.",
        handler=_overview,
        scopes=(Scope.AUDIT_READ,),
        tag="about",
        gives={200: ResponseSpec(about="The keep.", kind=OverviewView)},
    ),
)
