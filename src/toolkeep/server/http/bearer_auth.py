"""Bearer authentication: a token in, a caller with an agent and scopes out (POL-8).

Tokens are accepted in the `Authorization` header only: a query would end up in logs and histories. What a
client says about itself in headers, bodies or `clientInfo` is never an identity.
"""

import asyncio
import hashlib
import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol

from toolkeep.errors import Code
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.stores.api_tokens import TOKEN_PREFIX, Scope, Token, Tokens
from toolkeep.stores.identity_revocations import Revocation, RevokedIdentities

SCOPES: Final[dict[Scope, str]] = {
    Scope.TOOLS_READ: "see the tools that the token's agent may see",
    Scope.TOOLS_WRITE: "create, change, switch and delete definitions",
    Scope.CALL: "call tools as the token's agent, and see what became of its calls",
    Scope.SESSION: "begin sessions of the token's agent, and say what the user said",
    Scope.APPROVE: "see every call that waits for a person, and answer",
    Scope.AUDIT_READ: "read every record of the log",
    Scope.POLICIES_READ: "read, check and explain policies",
    Scope.METRICS: "read /metrics",
    Scope.OPENAPI: "read /openapi.json",
    Scope.MCP: "speak MCP as the token's agent",
    Scope.TOKENS: "list, make, rotate and revoke tokens",
    Scope.ADMIN: "all of these, see the tools of every agent, and put tools, grants and policies in force",
}

_BEARER: Final = re.compile(
    rb"(?i:bearer) +(tk_[A-Za-z0-9_-]{60}|(?=.{1,8192}\Z)[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+)"
)
"""A token of ours, or one of an issuer."""


Caller = Token
"""The authenticated token of a request."""


def holds(caller: Caller, *scopes: Scope) -> bool:
    """Whether a caller has one of these scopes."""
    return any(map(caller.has_scope, scopes))


def bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The bearer token of a request; empty if there is none or more than one `Authorization` header.

    With two, a proxy might check one and we the other.
    """
    given = [value for name, value in headers if name == b"authorization"]
    found = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
    return found.group(1).decode() if found else ""


def unauthenticated(metadata_url: str, scopes: Sequence[Scope], *, has_token: bool) -> RequestRefused:
    """The 401 for a missing and for an invalid token: one message, so that tokens cannot be probed.

    The challenge says where a client finds the authorization servers, and the scope that it needs.
    """
    error = 'error="invalid_token", ' if has_token else ""
    scope = f', scope="{scopes[0]}"' if scopes else ""
    challenge = f'Bearer {error}resource_metadata="{metadata_url}"{scope}'.encode()
    return RequestRefused(
        Code.NOT_AUTHENTICATED,
        "a valid token is required",
        hint="send `Authorization: Bearer TOKEN`; create a token with: toolkeep token make",
        headers=((b"www-authenticate", challenge),),
    )


def check_scope(
    caller: Caller, scopes: tuple[Scope, ...], metadata_url: Callable[[], str] | None = None
) -> None:
    """Raise unless the caller holds one of the scopes.

    The challenge lets a client ask its authorization server for a token with more (step-up).
    """
    if not holds(caller, *scopes):
        wanted = " or ".join(scopes)
        # With those that it has: a client asks for exactly what is named here, and would lose the others.
        more = " ".join(dict.fromkeys((*caller.scopes, scopes[0]))) if caller.identity else scopes[0]
        place = f', resource_metadata="{metadata_url()}"' if metadata_url else ""
        challenge = f'Bearer error="insufficient_scope", scope="{more}"{place}'.encode()
        raise RequestRefused(
            Code.SCOPE_MISSING,
            f"the token lacks the scope {wanted}",
            hint="ask the operator for a token that has it",
            headers=((b"www-authenticate", challenge),),
        )


_Asked = dict[bytes, "asyncio.Future[Token | None]"]


class ForeignTokens(Protocol):
    """Recognizes tokens that others issued."""

    async def recognize(self, text: str) -> Token | None:
        """The caller that a token names; None if it does not count."""

    def refuse(self, token: Token) -> None:
        """Tell that a token was revoked here."""


class BearerAuth:
    """Authenticates tokens; asks the store at most twice a second for each.

    Asking takes a thread and file or network access, a third of the time of a call. So a token revoked in
    another process is refused within a second, one revoked here at once. The cache holds SHA-256 hashes: a
    memory dump shows no token, and the time of a lookup depends on the hash, which a client cannot steer.
    """

    def __init__(
        self,
        tokens: Tokens,
        clock: Callable[[], float] = time.monotonic,
        foreign: ForeignTokens | None = None,
    ) -> None:
        self._tokens = tokens
        self._foreign = foreign
        self.clock = clock
        self._known: dict[bytes, tuple[Token, float]] = {}
        self._asked: _Asked = {}
        self._revoked = _Revoked()
        # Its own threads: a flood of invalid tokens slows down only first uses, not cached tokens or calls.
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="toolkeep-tokens")

    async def authenticate(self, text: str) -> Token | None:
        """Return the token if it is valid."""
        if not text.startswith(TOKEN_PREFIX):
            return await self._recognize(text)
        digest = hashlib.sha256(text.encode()).digest()
        if token := self._cached(digest):
            return token
        # Requests that come while the store is asked wait for its one answer: they may be hundreds.
        asked = self._asked.get(digest)
        if asked is None:
            asked = self._asked[digest] = asyncio.ensure_future(self.look_up(text))
            asked.add_done_callback(partial(_drop, self._asked, digest))
        return await asyncio.shield(asked)

    def _cached(self, digest: bytes) -> Token | None:
        """Return the token if the store confirmed it within the last half second."""
        known = self._known.get(digest)
        # The expiry is checked here too: the cache must not prolong a token.
        if known is None or self.clock() >= known[1] or not known[0].is_live(time.time()):
            return None
        return known[0]

    async def look_up(self, text: str) -> Token | None:
        """Return the token if the store confirms it now."""
        if not text.startswith(TOKEN_PREFIX):
            return await self._recognize(text)
        loop, known = asyncio.get_running_loop(), self._known
        token = await loop.run_in_executor(self._pool, self._tokens.recognize, text)
        # Only valid tokens are cached, so that wrong ones cannot fill the cache.
        if token is not None:
            if len(known) >= _REMEMBERED:
                known.clear()
            known[hashlib.sha256(text.encode()).digest()] = (token, self.clock() + _FRESH_S)
        return token

    async def _recognize(self, text: str) -> Token | None:
        token = None if self._foreign is None else await self._foreign.recognize(text)
        if self._foreign is None or token is None or token.identity is None:
            return None
        if (await self.revoked()).has_token(token.identity, token.created_at):
            self._foreign.refuse(token)
            return None
        return token

    async def revoked(self) -> RevokedIdentities:
        """What of identity providers does not count; asks the store at most twice a second."""
        held = self._revoked
        if self.clock() < held.until and held.known is not None:
            return held.known
        if held.asked is None:
            held.asked = asyncio.ensure_future(self._read_revoked(held))
        return await asyncio.shield(held.asked)

    async def _read_revoked(self, held: "_Revoked") -> RevokedIdentities:
        try:
            loop = asyncio.get_running_loop()
            listed = await loop.run_in_executor(self._pool, self._tokens.revocations)
            if listed != held.listed or held.known is None:
                held.listed, held.known = listed, RevokedIdentities(listed)
            held.until = self.clock() + _FRESH_S
            return held.known
        finally:
            held.asked = None

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False)

    def forget(self) -> None:
        """Clear the cache: a token was changed."""
        # Not emptied but replaced: what the store said before must not be cached after.
        self._known, self._asked, self._revoked = {}, {}, _Revoked()


class _Revoked:
    """What the store said of revoked identities."""

    def __init__(self) -> None:
        self.listed: Sequence[Revocation] = ()
        self.known: RevokedIdentities | None = None
        self.until = float("-inf")
        self.asked: asyncio.Future[RevokedIdentities] | None = None


def _drop(asked: _Asked, digest: bytes, _: object) -> None:
    del asked[digest]


_FRESH_S: Final = 0.5
"""How long a confirmed token is not asked about again, so how long one revoked in another process still
works."""
_REMEMBERED: Final = 10_000
"""Cached tokens: as many as one keep may have (`TOKENS`)."""
