"""The complete sign-in flow for a person at a terminal: discovery, registration, authorization, tokens.

The person is shown which host they will be sent to. Nothing is opened or stored here.
"""

from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec

from toolkeep.mcp_client.oauth.authorization_code import AuthorizationRequest
from toolkeep.mcp_client.oauth.challenge import Challenge, clean_scope, joined_scopes
from toolkeep.mcp_client.oauth.client_registration import OAuthSettings, client_for
from toolkeep.mcp_client.oauth.discovery import (
    AuthorizationServer,
    ProtectedResource,
    find_issuer,
    find_protected,
)
from toolkeep.mcp_client.oauth.http_client import AuthorizationServerClient
from toolkeep.mcp_client.oauth.redirect_listener import is_free, listening
from toolkeep.mcp_client.oauth.token_endpoint import exchange_code
from toolkeep.mcp_client.transport import UpstreamFailed
from toolkeep.stores.sign_ins import Client, StoredSignIn

Show = Callable[[str], None]
"""Shows the authorization URL to a person."""


class DiscoveredServers(msgspec.Struct, frozen=True, kw_only=True):
    """The protected resource and its authorization server."""

    protected: ProtectedResource
    issuer: AuthorizationServer


async def find_place(
    http: AuthorizationServerClient, url: str, challenge: Challenge, wanted: OAuthSettings
) -> DiscoveredServers:
    """Discover the authorization server. Raises `UpstreamFailed`."""
    protected = await find_protected(http, url, challenge.metadata_url)
    issuer = wanted.issuer or protected.issuers[0]
    # A configured issuer pins the authorization server: a compromised upstream cannot redirect the sign-in.
    if issuer not in protected.issuers:
        raise UpstreamFailed("it uses another issuer than the configuration names")
    return DiscoveredServers(protected=protected, issuer=await find_issuer(http, issuer))


async def sign_in(
    url: str,
    challenge: Challenge,
    wanted: OAuthSettings,
    show: Show,
    *,
    before: StoredSignIn | None = None,
    port: int = 0,
) -> StoredSignIn:
    """Run the flow and return the tokens. Raises `UpstreamFailed`."""
    http, attempt = AuthorizationServerClient(), AuthorizationRequest.new()
    place = await find_place(http, url, challenge, wanted)
    # Client ids are only meaningful to the issuer that gave them; another one could collect them.
    known = before if before is not None and before.issuer == place.issuer.issuer else None
    scope = _scope(challenge, wanted, place, known)
    async with listening(attempt.is_ours, port or _port_of(known)) as loopback:
        client = _reusable(known, loopback.redirect_uri) or await client_for(
            http, place.issuer, wanted, loopback.redirect_uri, scope
        )
        show(attempt.url(place.issuer, client, place.protected.resource, scope))
        code = attempt.code(await loopback.answer(), place.issuer)
    begun = StoredSignIn(
        url=url,
        issuer=place.issuer.issuer,
        resource=place.protected.resource,
        token_endpoint=place.issuer.token_endpoint,
        client=client,
        scope=scope,
        metadata_url=place.protected.metadata_url,
    )
    return await exchange_code(AuthorizationServerClient(), begun, code, attempt.verifier)


def _scope(
    challenge: Challenge, wanted: OAuthSettings, place: DiscoveredServers, known: StoredSignIn | None
) -> str:
    """Scope to request: demanded or advertised by the server, plus what was granted before."""
    asked = challenge.scope or place.protected.scope
    before = (known.scope, known.wanted) if known else ()
    lasting = "offline_access" if "offline_access" in place.issuer.scopes else ""
    return joined_scopes(*before, clean_scope(wanted.scope), asked, lasting)


def _reusable(known: StoredSignIn | None, redirect_uri: str) -> Client | None:
    """The client registered earlier by the same issuer for the same redirect URI."""
    is_same = known is not None and known.client.is_registered and known.client.redirect_uri == redirect_uri
    return known.client if known is not None and is_same else None


def _port_of(known: StoredSignIn | None) -> int:
    """Redirect port of the registered client if it is free; 0 for any."""
    if known is None or not known.client.is_registered:
        return 0
    port = urlsplit(known.client.redirect_uri).port or 0
    return port if is_free(port) else 0
