"""Who calls: a bearer token in, a caller with an agent and scopes out (POL-8).

A token comes in the `Authorization` header and nowhere else. What a client says of itself, in headers, bodies
or `clientInfo`, is never who it is.
"""

import asyncio
import hashlib
import re
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from toolkeep.errors import Code
from toolkeep.server.problems import RequestRefused
from toolkeep.tokens import Scope, Token, Tokens

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

_BEARER: Final = re.compile(rb"(?i:bearer) +(tk_[A-Za-z0-9_-]{60})")


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


class Recognizer:
    """Knows whose token a request came with; asks the store at most once a second for each.

    Asking takes a thread and a file or a network, and every call would pay for it (a third of its time). So a
    token that was revoked elsewhere is out within a second; one that was revoked here, at once. What is
    remembered is a hash: no token stays in memory.
    """

    def __init__(self, tokens: Tokens, clock: Callable[[], float] = time.monotonic) -> None:
        self._tokens = tokens
        self.clock = clock
        self._known: dict[bytes, tuple[Token, float]] = {}
        # Of its own: whoever floods us with wrong tokens holds up nobody who shows a right one twice.
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="toolkeep-tokens")

    async def find(self, text: str) -> Token | None:
        """The token, if it counts."""
        return self.recall(text) or await self.ask(text)

    def recall(self, text: str) -> Token | None:
        """The token, if the store vouched for it within the last second."""
        known = self._known.get(hashlib.sha256(text.encode()).digest())
        if known is None or self.clock() >= known[1] or not known[0].is_live(time.time()):
            return None
        return known[0]

    async def ask(self, text: str) -> Token | None:
        """The token, if the store vouches for it now."""
        loop = asyncio.get_running_loop()
        token = await loop.run_in_executor(self._pool, self._tokens.recognize, text)
        if token is not None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[hashlib.sha256(text.encode()).digest()] = (token, self.clock() + _FRESH_S)
        return token

    def close(self) -> None:
        """End the threads that ask."""
        self._pool.shutdown(wait=False)

    def forget(self) -> None:
        """Ask for every token anew: one of them was changed here."""
        self._known.clear()


_FRESH_S: Final = 1.0
_REMEMBERED: Final = 10_000
