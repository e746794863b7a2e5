"""Who signs in for a server: its own document (RFC 9728) leads to that of an authorization server (RFC 8414).

Each document must be about what it was asked for: the first about the server that we call, at its own origin,
the second about the issuer that the first names, letter by letter. Else somebody stands in for another.
"""

from typing import Any, Final

import msgspec

from toolkeep.sources.mcp.speaking import UpstreamFailed
from toolkeep.sources.oauth.asking import Asker
from toolkeep.sources.oauth.challenge import clean_scope
from toolkeep.sources.oauth.urls import base_of, check_https, holds, origin_of, path_of

_PROTECTED: Final = "/.well-known/oauth-protected-resource"
_WELL_KNOWN: Final = "/.well-known/oauth-authorization-server"
_OPEN_ID: Final = "/.well-known/openid-configuration"


class Protected(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says of itself."""

    resource: str
    issuers: tuple[str, ...]
    scope: str
    metadata_url: str


class Issuer(msgspec.Struct, frozen=True, kw_only=True):
    """What an authorization server says of itself, checked."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str
    methods: tuple[str, ...]
    """How its token endpoint can be told who asks."""
    scopes: tuple[str, ...]
    has_pkce: bool
    says_issuer: bool
    """Whether its answers name it (RFC 9207)."""
    takes_documents: bool
    """Whether the id of a client may be the URL of a document about it."""


async def find_protected(asker: Asker, url: str, metadata_url: str) -> Protected:
    """What the server at `url` says of itself. Raises `UpstreamFailed`."""
    check_https(url, "its address")
    for place in _places(url, metadata_url):
        data = await asker.document(place)
        if data is not None:
            return _protected(data, url, place)
    raise UpstreamFailed("it wants credentials, and does not say where one signs in")


def _places(url: str, metadata_url: str) -> list[str]:
    if metadata_url:
        check_https(metadata_url, "where it says who signs in for it")
        if origin_of(metadata_url) != origin_of(url):
            raise UpstreamFailed("where it says who signs in for it is another server")
        return [metadata_url]
    root = f"{base_of(url)}{_PROTECTED}"
    return list(dict.fromkeys((f"{root}{path_of(url)}", root)))


def _protected(data: dict[str, Any], url: str, place: str) -> Protected:
    resource = check_https(data.get("resource"), "the resource that it says it is")
    if not holds(resource, url):
        raise UpstreamFailed("the resource that it says it is is another one")
    issuers = _texts(data.get("authorization_servers"))
    if not issuers:
        raise UpstreamFailed("it does not say who signs in for it")
    return Protected(
        resource=resource,
        issuers=tuple(check_https(issuer, "who signs in for it") for issuer in issuers),
        scope=clean_scope(" ".join(_texts(data.get("scopes_supported")))),
        metadata_url=place,
    )


async def find_issuer(asker: Asker, issuer: str) -> Issuer:
    """What an authorization server says of itself. Raises `UpstreamFailed`."""
    check_https(issuer, "who signs in for it")
    base, path = base_of(issuer), path_of(issuer)
    places = [f"{base}{_WELL_KNOWN}{path}", f"{base}{_OPEN_ID}{path}", f"{base}{path}{_OPEN_ID}"]
    for place in dict.fromkeys(places):
        data = await asker.document(place)
        if data is not None:
            return _issuer(data, issuer)
    raise UpstreamFailed("who signs in for it does not say how")


def _issuer(data: dict[str, Any], issuer: str) -> Issuer:
    if data.get("issuer") != issuer:
        raise UpstreamFailed("who signs in for it says that it is somebody else")
    registration = data.get("registration_endpoint")
    authorization = data.get("authorization_endpoint")
    return Issuer(
        issuer=issuer,
        authorization_endpoint=check_https(authorization, "where one signs in") if authorization else "",
        token_endpoint=check_https(data.get("token_endpoint"), "where tokens are given"),
        registration_endpoint=check_https(registration, "where clients register") if registration else "",
        methods=_texts(data.get("token_endpoint_auth_methods_supported")),
        scopes=_texts(data.get("scopes_supported")),
        has_pkce="S256" in _texts(data.get("code_challenge_methods_supported")),
        says_issuer=data.get("authorization_response_iss_parameter_supported") is True,
        takes_documents=data.get("client_id_metadata_document_supported") is True,
    )


def _texts(found: Any) -> tuple[str, ...]:
    """The texts of a list; nothing where it is none."""
    listed = found[:100] if isinstance(found, list) else []
    return tuple(text for text in listed if isinstance(text, str))
