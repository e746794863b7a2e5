"""The status line of the page: who the caller is, what they may do, how far the log is verified."""

from typing import Final

import msgspec

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
)
