"""The key `identity` of the configuration: OpenID Connect issuers whose access tokens the server takes."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from toolkeep.stores.api_tokens import ROLES, Scope

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519", "EdDSA"),
)
"""Signatures with a public key. `none` and those with a shared secret are no choice.

`EdDSA` is what most providers still call `Ed25519`.
"""


class ClaimGrant(msgspec.Struct, frozen=True, kw_only=True):
    """What the bearer of a token gets, if its claims match."""

    claims: Mapping[str, str]
    """Claims that the token must have, each equal to this text or a list with it."""
    agent: str
    scopes: tuple[str, ...]


class PageSignIn(msgspec.Struct, frozen=True, kw_only=True):
    """How people sign in to the page with a provider, and what each of them may do there."""

    client_id: str
    grants: tuple[ClaimGrant, ...]
    """By claims of the ID token; the first that matches counts."""
    client_secret_file: str = ""
    """A file with the client's secret; empty for a public client, which PKCE alone protects."""
    label: str = ""
    scope: str = "openid"


class Issuer(msgspec.Struct, frozen=True, kw_only=True):
    """An issuer of access tokens, and what each of them grants."""

    issuer: str
    audience: str
    algorithm: str
    grants: tuple[ClaimGrant, ...] = ()
    page: PageSignIn | None = None
    keys: str = ""
    """The URL of its keys; empty where its metadata names it."""
    host: str = ""
    """The scope of a private network or loopback address that it may be reached at."""
    token_type: str = "at+jwt"  # noqa: S105 -- no password
    max_hours: float = 24.0
    limits_scopes: bool = False
    """Whether a scope counts only if the token's `scope` names it, too."""


class IdentitySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who is taken for whom."""

    issuers: tuple[Issuer, ...] = ()


Data = dict[str, Any]


def read_identity(data: Data | None) -> IdentitySettings | None:
    """The key `identity`."""
    if not data:
        return None
    return IdentitySettings(issuers=tuple(msgspec.convert(one, Issuer) for one in data.get("issuers") or ()))


def wrong_with_issuer(data: Data, earlier: Collection[str]) -> Iterator[tuple[str, str]]:
    """What is wrong with an issuer, each with the key; `earlier` are the names of those before it."""
    from toolkeep.network.hosts import HostScope

    if data["issuer"] in earlier:
        # One of the two would count, and nothing would say which.
        yield "/issuer", "there is an entry for this issuer already; write their `grants` into one"
    if not data.get("grants") and not data.get("page"):
        yield "", "it grants nothing; set `grants` for access tokens, or `page` for people"
    page = data.get("page") or {}
    if data.get("token_type") == "JWT" and page.get("client_id") == data["audience"]:
        # Nothing would tell the ID token of a person from an access token.
        yield "/audience", "it is the `client_id` of the page, too, so ID tokens would count as access tokens"
    try:
        HostScope.read_grant(data.get("host") or "a.example")
    except ValueError as error:
        yield "/host", str(error)


_TEXT: Final[Data] = {"type": "string", "minLength": 1, "maxLength": 256}
_URL: Final[Data] = {
    "type": "string",
    "maxLength": 1024,
    "pattern": r"^(https://|http://(127\.0\.0\.1|\[::1\]):)[^\s@?#]+$",
}
_GRANTS: Final[Data] = {
    "type": "array",
    "minItems": 1,
    "maxItems": 1000,
    "description": "What its tokens grant. The first that matches counts.",
    "items": {
        "type": "object",
        "required": ["claims", "agent", "scopes"],
        "properties": {
            "claims": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 16,
                "additionalProperties": _TEXT,
                "description": "Claims that it must have: equal, or a list with it.",
            },
            "agent": {**_TEXT, "description": "The agent that its calls are made as."},
            "scopes": {
                "type": "array",
                "minItems": 1,
                "items": {"enum": list(dict.fromkeys((*Scope, *ROLES)))},
                "description": "Scopes, or names of roles.",
            },
        },
    },
}
_PAGE: Final[Data] = {
    "type": "object",
    "description": "Lets people sign in to the page with it.",
    "required": ["client_id", "grants"],
    "properties": {
        "client_id": {**_TEXT, "description": "The client that it knows this server as."},
        "client_secret_file": {
            **_TEXT,
            "maxLength": 1024,
            "description": "A file with the client's secret; without one, the client is public.",
        },
        "label": {**_TEXT, "maxLength": 64, "description": "What the button says."},
        "scope": {
            "type": "string",
            "pattern": "^openid( [!#-~]+)*$",
            "maxLength": 256,
            "description": "What is asked for: `openid`, and what the claims of `grants` need.",
        },
        "grants": {
            **_GRANTS,
            "description": "What people may do, by claims of their ID token; the first counts.",
        },
    },
}
IDENTITY: Final[Data] = {
    "type": "object",
    "description": "OpenID Connect issuers whose access tokens the server takes, beside its own tokens.",
    "properties": {
        "issuers": {
            "type": "array",
            "maxItems": 32,
            "description": "The issuers, and what their tokens grant.",
            "items": {
                "type": "object",
                "required": ["issuer", "audience", "algorithm"],
                "properties": {
                    "issuer": {**_URL, "description": "As its tokens say in `iss`, exactly."},
                    "audience": {
                        **_TEXT,
                        "maxLength": 1024,
                        "description": "What its tokens must have in `aud`: the URL of this server's `/mcp`.",
                    },
                    "algorithm": {
                        "enum": list(ALGORITHMS),
                        "description": "The one algorithm of its signatures.",
                    },
                    "keys": {
                        **_URL,
                        "description": "URL of its keys (JWKS), unless its metadata says it.",
                    },
                    "host": {
                        **_TEXT,
                        "description": "For an issuer in a private network: its host as in a grant, such as "
                        "`login.corp=10.0.0.0/8` or `127.0.0.1:9000`.",
                    },
                    "token_type": {
                        "enum": ["at+jwt", "JWT"],
                        "description": "`typ` of its access tokens; `JWT` if it does not follow RFC 9068.",
                    },
                    "max_hours": {
                        "type": "number",
                        "exclusiveMinimum": 0,
                        "maximum": 720,
                        "description": "Tokens that live longer are refused.",
                    },
                    "limits_scopes": {
                        "type": "boolean",
                        "description": "A scope counts only if the token's `scope` names it, too.",
                    },
                    "grants": {
                        **_GRANTS,
                        "description": "What its access tokens grant. The first that matches counts.",
                    },
                    "page": _PAGE,
                },
            },
        }
    },
}
