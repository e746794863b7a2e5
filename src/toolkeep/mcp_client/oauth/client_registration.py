"""OAuth client identity: preregistered, metadata document, or dynamic client registration (RFC 7591)."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from toolkeep.mcp_client.oauth.discovery import AuthorizationServer
from toolkeep.mcp_client.oauth.http_client import AuthorizationServerClient
from toolkeep.mcp_client.transport import UpstreamFailed
from toolkeep.stores.sign_ins import Client

METHODS: Final = ("none", "client_secret_basic", "client_secret_post")
_WITH_SECRET: Final = METHODS[1:]
_CHARS: Final = 4_096
"""Maximum length of a client id or secret: both together, in base64, fit into the 16 KiB of a request head
that most servers accept."""


class OAuthSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The `oauth` settings of an upstream."""

    client_id: str = ""
    client_secret: str = ""
    issuer: str = ""
    grant: str = "authorization_code"
    scope: str = ""

    def __repr__(self) -> str:
        """Without secrets."""
        return "<how to sign in>"

    @classmethod
    def read(cls, data: Mapping[str, Any], secret: str = "") -> "OAuthSettings":
        """From the configuration, where `client_secret` only names a secret."""
        told = {key: str(value) for key, value in data.items() if key != "client_secret"}
        return cls(**told, client_secret=secret)


async def client_for(
    http: AuthorizationServerClient,
    issuer: AuthorizationServer,
    wanted: OAuthSettings,
    redirect_uri: str,
    scope: str,
) -> Client:
    """Get a client that the authorization server knows. Raises `UpstreamFailed`."""
    is_document = wanted.client_id.startswith("https://")
    # A preregistered client is preferred: registration would create a new client at every sign-in.
    if wanted.client_id and not (is_document and not issuer.supports_metadata_documents):
        return Client(
            id=wanted.client_id,
            secret=wanted.client_secret,
            method=method_for(issuer, has_secret=bool(wanted.client_secret)),
            redirect_uri=redirect_uri,
        )
    if not issuer.registration_endpoint:
        raise UpstreamFailed(
            "its authorization server registers no clients: register by hand and set client_id"
        )
    return await _registered(http, issuer, redirect_uri, scope)


def method_for(issuer: AuthorizationServer, *, has_secret: bool) -> str:
    """Client authentication method for the token endpoint; by default that of RFC 8414."""
    if not has_secret:
        return "none"
    known = [method for method in _WITH_SECRET if method in (issuer.methods or ("client_secret_basic",))]
    if not known:
        raise UpstreamFailed(
            "its authorization server supports no client authentication method that toolkeep supports"
        )
    return known[0]


async def _registered(
    http: AuthorizationServerClient, issuer: AuthorizationServer, redirect_uri: str, scope: str
) -> Client:
    """Dynamic client registration (RFC 7591).

    The server's response wins over our request, if we support it.
    """
    offered = issuer.methods or ("client_secret_basic",)
    method = next((method for method in METHODS if method in offered), "none")
    metadata: dict[str, Any] = {
        "client_name": "toolkeep",
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
    if scope:
        metadata["scope"] = scope
    status, said = await http.post_json(issuer.registration_endpoint, metadata)
    client_id, secret = said.get("client_id"), said.get("client_secret", "")
    if status not in (200, 201) or not _is_text(client_id) or not client_id:
        raise UpstreamFailed("its authorization server rejected the client registration")
    given = said.get("token_endpoint_auth_method", method)
    # The secret becomes a header or form field; a value with control characters could inject another.
    if given not in METHODS or not _is_text(secret) or (given in _WITH_SECRET and not secret):
        raise UpstreamFailed("its authorization server registered the client with unsupported settings")
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
