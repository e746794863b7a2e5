"""OAuth discovery: protected resource metadata (RFC 9728) leads to authorization server metadata (RFC 8414).

Each document must describe what was requested: the first the server we call, from its own origin; the second
the issuer that the first names, compared exactly. Otherwise one server could impersonate another (mix-up
attack).
"""

from typing import Any, Final

import msgspec

from toolkeep.mcp_client.oauth.challenge import clean_scope
from toolkeep.mcp_client.oauth.http_client import AuthorizationServerClient
from toolkeep.mcp_client.oauth.server_urls import base_of, check_https, covers_url, origin_of, path_of
from toolkeep.mcp_client.transport import UpstreamFailed

_PROTECTED: Final = "/.well-known/oauth-protected-resource"
_WELL_KNOWN: Final = "/.well-known/oauth-authorization-server"
_OPEN_ID: Final = "/.well-known/openid-configuration"


class ProtectedResource(msgspec.Struct, frozen=True, kw_only=True):
    """Protected resource metadata (RFC 9728)."""

    resource: str
    issuers: tuple[str, ...]
    scope: str
    metadata_url: str


class AuthorizationServer(msgspec.Struct, frozen=True, kw_only=True):
    """Validated authorization server metadata."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str
    methods: tuple[str, ...]
    """Supported client authentication methods of the token endpoint."""
    scopes: tuple[str, ...]
    has_pkce: bool
    sends_iss: bool
    """Whether its authorization responses carry `iss` (RFC 9207)."""
    supports_metadata_documents: bool
    """Whether it supports client id metadata documents."""


async def find_protected(http: AuthorizationServerClient, url: str, metadata_url: str) -> ProtectedResource:
    """Fetch the protected resource metadata of the server at `url`. Raises `UpstreamFailed`."""
    check_https(url, "its address")
    for place in _places(url, metadata_url):
        data = await http.document(place)
        if data is not None:
            return _protected(data, url, place)
    raise UpstreamFailed("it requires credentials but names no authorization server")


def _places(url: str, metadata_url: str) -> list[str]:
    if metadata_url:
        check_https(metadata_url, "the address of its resource metadata")
        # Same origin: another host must not say who may issue tokens for this server.
        if origin_of(metadata_url) != origin_of(url):
            raise UpstreamFailed("its resource metadata is on another server")
        return [metadata_url]
    root = f"{base_of(url)}{_PROTECTED}"
    return list(dict.fromkeys((f"{root}{path_of(url)}", root)))


def _protected(data: dict[str, Any], url: str, place: str) -> ProtectedResource:
    resource = check_https(data.get("resource"), "the resource in its metadata")
    # The resource becomes the token's audience (RFC 8707): another one would make the token valid elsewhere.
    if not covers_url(resource, url):
        raise UpstreamFailed("its metadata describes another resource")
    issuers = _texts(data.get("authorization_servers"))
    if not issuers:
        raise UpstreamFailed("its metadata names no authorization server")
    return ProtectedResource(
        resource=resource,
        issuers=tuple(check_https(issuer, "its authorization server") for issuer in issuers),
        scope=clean_scope(" ".join(_texts(data.get("scopes_supported")))),
        metadata_url=place,
    )


async def find_issuer(http: AuthorizationServerClient, issuer: str) -> AuthorizationServer:
    """Fetch the metadata of an authorization server. Raises `UpstreamFailed`."""
    check_https(issuer, "its authorization server")
    base, path = base_of(issuer), path_of(issuer)
    places = [f"{base}{_WELL_KNOWN}{path}", f"{base}{_OPEN_ID}{path}", f"{base}{path}{_OPEN_ID}"]
    for place in dict.fromkeys(places):
        data = await http.document(place)
        if data is not None:
            return _issuer(data, issuer)
    raise UpstreamFailed("its authorization server has no metadata")


def _issuer(data: dict[str, Any], issuer: str) -> AuthorizationServer:
    # Exact comparison (RFC 8414, section 3.3): normalization would let look-alike issuers pass.
    if data.get("issuer") != issuer:
        raise UpstreamFailed("its authorization server identifies itself as another one")
    registration = data.get("registration_endpoint")
    authorization = data.get("authorization_endpoint")
    return AuthorizationServer(
        issuer=issuer,
        authorization_endpoint=check_https(authorization, "its authorization endpoint")
        if authorization
        else "",
        token_endpoint=check_https(data.get("token_endpoint"), "its token endpoint"),
        registration_endpoint=check_https(registration, "its registration endpoint") if registration else "",
        methods=_texts(data.get("token_endpoint_auth_methods_supported")),
        scopes=_texts(data.get("scopes_supported")),
        has_pkce="S256" in _texts(data.get("code_challenge_methods_supported")),
        sends_iss=data.get("authorization_response_iss_parameter_supported") is True,
        supports_metadata_documents=data.get("client_id_metadata_document_supported") is True,
    )


def _texts(found: Any) -> tuple[str, ...]:
    """The strings of a list; empty for anything else."""
    # Bounded: each issuer of a hostile list could cost requests of ours.
    listed = found[:100] if isinstance(found, list) else []
    return tuple(text for text in listed if isinstance(text, str))
