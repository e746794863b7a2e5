"""Who we are to an authorization server: as it was told beforehand, by a document, or registered."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from toolkeep.sign_ins import Client
from toolkeep.sources.mcp.speaking import UpstreamFailed
from toolkeep.sources.oauth.asking import Asker
from toolkeep.sources.oauth.discovery import Issuer

METHODS: Final = ("none", "client_secret_basic", "client_secret_post")
_WITH_SECRET: Final = METHODS[1:]
_CHARS: Final = 4_096


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator says about signing in: `oauth` of an upstream."""

    client_id: str = ""
    client_secret: str = ""
    issuer: str = ""
    grant: str = "authorization_code"
    scope: str = ""

    def __repr__(self) -> str:
        """Without what is secret."""
        return "<how to sign in>"

    @classmethod
    def read(cls, data: Mapping[str, Any], secret: str = "") -> "Wanted":
        """From the configuration, whose `client_secret` only names a secret."""
        told = {key: str(value) for key, value in data.items() if key != "client_secret"}
        return cls(**told, client_secret=secret)


async def client_for(asker: Asker, issuer: Issuer, wanted: Wanted, redirect_uri: str, scope: str) -> Client:
    """A client that the authorization server knows. Raises `UpstreamFailed`."""
    is_document = wanted.client_id.startswith("https://")
    if wanted.client_id and not (is_document and not issuer.takes_documents):
        return Client(
            id=wanted.client_id,
            secret=wanted.client_secret,
            method=method_for(issuer, has_secret=bool(wanted.client_secret)),
            redirect_uri=redirect_uri,
        )
    if not issuer.registration_endpoint:
        raise UpstreamFailed("who signs in for it registers nobody: register by hand, and name the client_id")
    return await _registered(asker, issuer, redirect_uri, scope)


def method_for(issuer: Issuer, *, has_secret: bool) -> str:
    """How the token endpoint is told who asks; the default of RFC 8414 where it does not say."""
    if not has_secret:
        return "none"
    known = [method for method in _WITH_SECRET if method in (issuer.methods or ("client_secret_basic",))]
    if not known:
        raise UpstreamFailed("who signs in for it takes no secret of a client in a way that is spoken here")
    return known[0]


async def _registered(asker: Asker, issuer: Issuer, redirect_uri: str, scope: str) -> Client:
    """RFC 7591; what the server makes of our wishes counts, if we can do it."""
    offered = issuer.methods or ("client_secret_basic",)
    method = next((method for method in METHODS if method in offered), "none")
    wishes: dict[str, Any] = {
        "client_name": "toolkeep",
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
    if scope:
        wishes["scope"] = scope
    status, said = await asker.post_json(issuer.registration_endpoint, wishes)
    client_id, secret = said.get("client_id"), said.get("client_secret", "")
    if status not in (200, 201) or not _is_text(client_id) or not client_id:
        raise UpstreamFailed("who signs in for it did not register us")
    given = said.get("token_endpoint_auth_method", method)
    if given not in METHODS or not _is_text(secret) or (given in _WITH_SECRET and not secret):
        raise UpstreamFailed("who signs in for it registered us in a way that cannot be used")
    return Client(
        id=client_id,
        secret=secret if given in _WITH_SECRET else "",
        method=given,
        redirect_uri=redirect_uri,
        is_registered=True,
    )


def _is_text(value: Any) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= _CHARS
        and value.isascii()
        and (value.isprintable() or not value)
    )
