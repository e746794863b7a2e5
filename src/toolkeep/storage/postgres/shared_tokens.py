"""API tokens of servers that share a PostgreSQL, in a sealed register."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from toolkeep.limits import TOKEN_USE_SECONDS
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.postgres.shared_register import SharedRegister
from toolkeep.stores.api_tokens import KeptToken, MemoryTokens, Token

# Beside the register: times of use decide nothing, and would give all servers news each minute.
_USED = """
INSERT INTO shared_token_uses VALUES (%s, %s)
ON CONFLICT (id) DO UPDATE SET used_at = greatest(shared_token_uses.used_at, excluded.used_at)
"""


class SharedTokens:
    """The tokens of one keep."""

    def __init__(self, register: SharedRegister[KeptToken], database: SharedDatabase) -> None:
        self._register = register
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
        used: dict[str, float] = dict(self._database.change(_uses))
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

    def close(self) -> None:
        """Close the connection."""
        self._database.close()


def _uses(connection: Any) -> list[tuple[str, float]]:
    rows: list[tuple[str, float]] = connection.execute("SELECT id, used_at FROM shared_token_uses").fetchall()
    return rows
