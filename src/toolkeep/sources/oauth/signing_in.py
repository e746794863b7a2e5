"""A whole sign-in, for a person at a terminal: who signs in for a server, the URL to open, the tokens.

A person is told which host they will be sent to. Nothing is opened and nothing is kept here.
"""

from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec

from toolkeep.sign_ins import Client, Kept
from toolkeep.sources.mcp.speaking import UpstreamFailed
from toolkeep.sources.oauth.asking import Asker
from toolkeep.sources.oauth.authorizing import Attempt
from toolkeep.sources.oauth.challenge import Challenge, clean_scope, joined_scopes
from toolkeep.sources.oauth.clients import Wanted, client_for
from toolkeep.sources.oauth.discovery import Issuer, Protected, find_issuer, find_protected
from toolkeep.sources.oauth.loopback import is_free, listening
from toolkeep.sources.oauth.tokens import exchange_code

Show = Callable[[str], None]
"""Tells a person the URL to open."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Who is signed in to, and who signs in for it."""

    protected: Protected
    issuer: Issuer


async def find_place(asker: Asker, url: str, challenge: Challenge, wanted: Wanted) -> Place:
    """Whom to ask for tokens. Raises `UpstreamFailed`."""
    protected = await find_protected(asker, url, challenge.metadata_url)
    issuer = wanted.issuer or protected.issuers[0]
    if issuer not in protected.issuers:
        raise UpstreamFailed("it wants another issuer than the configuration names")
    return Place(protected=protected, issuer=await find_issuer(asker, issuer))


async def sign_in(
    url: str, challenge: Challenge, wanted: Wanted, show: Show, *, before: Kept | None = None, port: int = 0
) -> Kept:
    """Tokens that a person agreed to. Raises `UpstreamFailed`."""
    asker, attempt = Asker(), Attempt.new()
    place = await find_place(asker, url, challenge, wanted)
    known = before if before is not None and before.issuer == place.issuer.issuer else None
    scope = _scope(challenge, wanted, place, known)
    async with listening(attempt.is_ours, port or _port_of(known)) as loopback:
        client = _reusable(known, loopback.redirect_uri) or await client_for(
            asker, place.issuer, wanted, loopback.redirect_uri, scope
        )
        show(attempt.url(place.issuer, client, place.protected.resource, scope))
        code = attempt.code(await loopback.answer(), place.issuer)
    begun = Kept(
        url=url,
        issuer=place.issuer.issuer,
        resource=place.protected.resource,
        token_endpoint=place.issuer.token_endpoint,
        client=client,
        scope=scope,
        metadata_url=place.protected.metadata_url,
    )
    return await exchange_code(Asker(), begun, code, attempt.verifier)


def _scope(challenge: Challenge, wanted: Wanted, place: Place, known: Kept | None) -> str:
    """What the server asks for now, or says that there is; with what was agreed to before."""
    asked = challenge.scope or place.protected.scope
    before = (known.scope, known.wanted) if known else ()
    lasting = "offline_access" if "offline_access" in place.issuer.scopes else ""
    return joined_scopes(*before, clean_scope(wanted.scope), asked, lasting)


def _reusable(known: Kept | None, redirect_uri: str) -> Client | None:
    """The client that the same issuer registered for the same place to come back to."""
    is_same = known is not None and known.client.is_registered and known.client.redirect_uri == redirect_uri
    return known.client if known is not None and is_same else None


def _port_of(known: Kept | None) -> int:
    """Where a registered client came back to the last time, if that is free; 0 for anywhere."""
    if known is None or not known.client.is_registered:
        return 0
    port = urlsplit(known.client.redirect_uri).port or 0
    return port if is_free(port) else 0
