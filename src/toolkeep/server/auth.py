"""Who calls: a bearer token in, a caller with an agent and scopes out (POL-8).

A token comes in the `Authorization` header and nowhere else. What a client says of itself, in headers, bodies
or `clientInfo`, is never who it is.
"""

import re
from collections.abc import Iterable
from typing import Final

from toolkeep.errors import Code
from toolkeep.server.problems import RequestRefused
from toolkeep.tokens import Scope, Token

SCOPES: Final[dict[Scope, str]] = {
    Scope.TOOLS_READ: "see the tools that the token's agent may know of",
    Scope.TOOLS_WRITE: "create, change, switch and delete definitions",
    Scope.CALL: "call tools as the token's agent, and see what became of its calls",
    Scope.APPROVE: "see every call that waits for a person, and answer",
    Scope.AUDIT_READ: "read every record of the log",
    Scope.POLICIES_READ: "read, check and explain policies",
    Scope.METRICS: "read /metrics",
    Scope.OPENAPI: "read /openapi.json",
    Scope.MCP: "speak MCP as the token's agent",
    Scope.TOKENS: "list, make, rotate and revoke tokens",
    Scope.ADMIN: "all of these, and see the tools of every agent",
}

_BEARER: Final = re.compile(rb"[Bb]earer +([A-Za-z0-9._~+/=-]{1,512})")


Caller = Token
"""Whose request it is: what is known of the token that it came with."""


def holds(caller: Caller, *scopes: Scope) -> bool:
    """Whether a caller has one of these scopes."""
    return any(map(caller.has_scope, scopes))


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
        hint="send `Authorization: Bearer TOKEN`; the operator makes one: toolkeep token make",
        headers=((b"www-authenticate", challenge),),
    )


def check_scope(caller: Caller, scopes: tuple[Scope, ...]) -> None:
    """Raise where a caller holds none of the scopes that would do."""
    if not holds(caller, *scopes):
        wanted = " or ".join(scopes)
        challenge = f'Bearer error="insufficient_scope", scope="{scopes[0]}"'.encode()
        raise RequestRefused(
            Code.SCOPE_MISSING,
            f"the token lacks the scope {wanted}",
            hint="ask the operator for a token that has it",
            headers=((b"www-authenticate", challenge),),
        )
