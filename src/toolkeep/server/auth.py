"""Who calls: a bearer token in, a caller with an agent and scopes out (POL-8).

A token comes in the `Authorization` header and nowhere else. What a client says of itself, in headers, bodies
or `clientInfo`, is never who it is.
"""

import re
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from toolkeep.errors import Code
from toolkeep.server.problems import RequestRefused

SCOPES: Final[dict[str, str]] = {
    "tools:read": "see the tools that the token's agent may know of",
    "tools:write": "create, change, switch and delete definitions",
    "call": "call tools as the token's agent, and see what became of it",
    "approve": "see every call that waits for a person, and answer",
    "audit:read": "read every record of the log",
    "policies:read": "read, check and explain policies",
    "metrics": "read /metrics",
    "openapi": "read /openapi.json",
    "mcp": "speak MCP as the token's agent",
    "tokens": "list, make and revoke tokens",
    "admin": "all of these, and see the tools of every agent",
}
ADMIN: Final = "admin"

_BEARER: Final = re.compile(rb"[Bb]earer +([A-Za-z0-9._~+/=-]{8,512})")


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Whose request it is. Made from a token, and from nothing else."""

    token: str
    """The id of the token, which is no secret."""
    agent: str
    scopes: frozenset[str]

    def has(self, *scopes: str) -> bool:
        """Whether it holds one of these; `admin` holds all."""
        return ADMIN in self.scopes or not self.scopes.isdisjoint(scopes)


class Tokens(Protocol):
    """Where tokens are known."""

    def identify(self, presented: str) -> Caller | None:
        """Whose token this is; None for one that is unknown, revoked or over."""


def presented(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The token of a request; empty where there is none, or more than one header that could hold it."""
    given = [value for name, value in headers if name == b"authorization"]
    found = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
    return found.group(1).decode() if found else ""


def unknown_caller(metadata_url: str) -> RequestRefused:
    """No token, or none that counts: both in the same words."""
    challenge = f'Bearer resource_metadata="{metadata_url}"'.encode()
    return RequestRefused(
        Code.NOT_AUTHENTICATED,
        "a token is needed, and none that counts was given",
        hint="send `Authorization: Bearer TOKEN`; the operator makes one with `toolkeep token`",
        headers=((b"www-authenticate", challenge),),
    )


def check_scope(caller: Caller, scopes: tuple[str, ...]) -> None:
    """Raise where a caller holds none of the scopes that would do."""
    if not caller.has(*scopes):
        wanted = " or ".join(scopes)
        challenge = f'Bearer error="insufficient_scope", scope="{scopes[0]}"'.encode()
        raise RequestRefused(
            Code.SCOPE_MISSING,
            f"the token lacks the scope {wanted}",
            hint="ask the operator for a token that has it",
            headers=((b"www-authenticate", challenge),),
        )
