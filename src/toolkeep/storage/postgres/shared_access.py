"""Who comes in to servers that share a PostgreSQL: API tokens, codes of links to the page, and sign-outs."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from toolkeep.limits import TOKEN_USE_SECONDS
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.postgres.shared_register import SharedRegister
from toolkeep.storage.sqlite.sign_in_codes import MemorySignInCodes
from toolkeep.stores.api_tokens import KeptToken, MemoryTokens, Token
from toolkeep.stores.identity_revocations import Revocation

# Beside the register: times of use decide nothing, and would give all servers news each minute.
_USED = """
INSERT INTO shared_token_uses VALUES (%s, %s)
ON CONFLICT (id) DO UPDATE SET used_at = greatest(shared_token_uses.used_at, excluded.used_at)
"""

_LATEST: Final = 4_102_444_800.0
"""The end of this century."""


class SharedTokens:
    """The tokens of one keep."""

    def __init__(
        self,
        register: SharedRegister[KeptToken],
        revoked: SharedRegister[Revocation],
        database: SharedDatabase,
    ) -> None:
        self._register = register
        self._revoked = revoked
        self._database = database
        self._noted: dict[str, float] = {}
        """When this server stored a use."""

    def add(self, kept: KeptToken, *, most: int) -> bool:
        """Store a token; False where there are `most` already."""
        return self._register.change(lambda held: MemoryTokens(held).add(kept, most=most))

    def find(self, token_id: str) -> KeptToken | None:
        """The token of an id."""
        kept = self._register.read().get(token_id)
        if kept is None or token_id not in self._noted:
            return kept
        return KeptToken(replace(kept.token, last_used_at=self._noted[token_id]), kept.secret_hash)

    def all(self) -> Sequence[Token]:
        """Every token, oldest first."""
        tokens = MemoryTokens(self._register.read()).all()
        # As far as they can be times: they carry no MAC, and others would keep the list from being shown.
        used = {one: at for one, at in self._database.change(_uses) if 0 <= at <= _LATEST}
        return [replace(token, last_used_at=used.get(token.id)) for token in tokens]

    def revoke(self, token_id: str, at: float) -> bool:
        """Revoke a token; False where there is no valid one."""
        return self._register.change(lambda held: MemoryTokens(held).revoke(token_id, at))

    def exchange(self, token_id: str, kept: KeptToken, *, ends_at: float) -> bool:
        """Rotate: store a new token and expire the old one, in one change; False where it is gone."""
        return self._register.change(
            lambda held: MemoryTokens(held).exchange(token_id, kept, ends_at=ends_at)
        )

    def note_use(self, token_id: str, at: float) -> None:
        """Store when a token was last used, once a minute at most."""
        if at - self._noted.get(token_id, 0.0) > TOKEN_USE_SECONDS:
            self._noted[token_id] = at
            self._database.change(lambda connection: connection.execute(_USED, (token_id, at)))

    def revocations(self) -> Sequence[Revocation]:
        """What of identity providers does not count, oldest first."""
        return MemoryTokens(revoked=self._revoked.read()).revocations()

    def add_revocation(self, revocation: Revocation, *, most: int) -> bool:
        """Revoke something, and forget what is over; False where there are `most` already."""
        return self._revoked.change(
            lambda held: MemoryTokens(revoked=held).add_revocation(revocation, most=most)
        )

    def remove_revocation(self, revocation_id: str) -> bool:
        """Let something count again; False where it was not revoked."""
        return self._revoked.change(lambda held: MemoryTokens(revoked=held).remove_revocation(revocation_id))

    def close(self) -> None:
        """Close the connection."""
        self._database.close()


class SharedSignInCodes:
    """One-time codes that work on every server, once."""

    def __init__(self, register: SharedRegister[float], clock: Callable[[], float] = time.time) -> None:
        self._register = register
        self._clock = clock

    def make(self) -> str:
        """A new code, told this once."""
        return self._register.change(lambda held: MemorySignInCodes(self._clock, held).make())

    def use(self, code: str) -> bool:
        """Use a code up; False for one that does not count."""
        return self._register.change(lambda held: MemorySignInCodes(self._clock, held).use(code))


class SharedSignedOut:
    """The sessions that people ended on any server."""

    def __init__(self, register: SharedRegister[float]) -> None:
        self._register = register

    async def add(self, session_id: str, ends_at: float, now: float) -> bool:
        """Remember a session until it would have ended anyway; False if it was ended before."""

        def edit(held: dict[str, float]) -> bool:
            for over in [one for one, end in held.items() if end <= now]:
                del held[over]
            is_new = session_id not in held
            held[session_id] = ends_at
            return is_new

        return await asyncio.to_thread(self._register.change, edit)

    async def has(self, session_id: str) -> bool:
        """Whether it was ended; raises `StoreUnavailable`, as a session must not count if nobody can tell."""
        return session_id in await asyncio.to_thread(self._register.read)


def _uses(connection: Any) -> list[tuple[str, float]]:
    rows: list[tuple[str, float]] = connection.execute("SELECT id, used_at FROM shared_token_uses").fetchall()
    return rows
