"""API tokens in SQLite: `tokens.db` of the state folder, and `revocations.db`, for all processes of a keep.

Every request over the network looks its token up here, so the statements are plain.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from toolkeep.storage.sqlite.database import Database
from toolkeep.stores.api_tokens import KeptToken, MemoryTokens, Scope, Token
from toolkeep.stores.identity_revocations import Revocation

if TYPE_CHECKING:
    import sqlite3

# synchronous = FULL: a revoked token stays revoked after a crash of the machine.
_PRAGMAS = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON;"
_TABLES = """
CREATE TABLE tokens (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, scopes TEXT NOT NULL, agent TEXT NOT NULL,
    created_at REAL NOT NULL, expires_at REAL, last_used_at REAL, revoked_at REAL, secret_hash BLOB NOT NULL
) STRICT;
"""
_REVOKED = """
CREATE TABLE revocations (id TEXT PRIMARY KEY, content BLOB NOT NULL) STRICT;
"""
_FIELDS = "id, name, scopes, agent, created_at, expires_at, last_used_at, revoked_at"
_LIVE = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)"


class SqliteTokens:
    """The tokens of one keep. Reading creates nothing."""

    def __init__(self, folder: Path) -> None:
        self._database = Database(folder / "tokens.db", _PRAGMAS, _TABLES)
        # With a mark: without this file, everything in it would count again.
        self._revoked = Database(
            folder / "revocations.db", _PRAGMAS, _REVOKED, mark=folder / "keys" / "revocations.made"
        )

    def add(self, kept: KeptToken, *, most: int) -> bool:
        """Store a token; False where there are `most` already."""
        with self._database.changing() as connection:
            count = f"SELECT count(*) FROM tokens WHERE {_LIVE}"  # noqa: S608 -- our own words
            if connection.execute(count, (kept.token.created_at,)).fetchone()[0] >= most:
                return False
            connection.execute(_INSERT, _row(kept))
            return True

    def find(self, token_id: str) -> KeptToken | None:
        """The token of an id."""
        if not self._database.exists():
            return None
        query = f"SELECT {_FIELDS}, secret_hash FROM tokens WHERE id = ?"  # noqa: S608 -- our own words
        with self._database.using() as connection:
            row = connection.execute(query, (token_id,)).fetchone()
        return None if row is None else KeptToken(read_token(row[:-1]), row[-1])

    def all(self) -> Sequence[Token]:
        """Every token, oldest first."""
        if not self._database.exists():
            return ()
        query = f"SELECT {_FIELDS} FROM tokens ORDER BY created_at, id"  # noqa: S608 -- our own words
        with self._database.using() as connection:
            return [read_token(row) for row in connection.execute(query)]

    def revoke(self, token_id: str, at: float) -> bool:
        """Revoke a token; False where there is no valid one."""
        return self._changed(f"UPDATE tokens SET revoked_at = ? WHERE id = ? AND {_LIVE}", at, token_id, at)  # noqa: S608 -- our own words

    def exchange(self, token_id: str, kept: KeptToken, *, ends_at: float) -> bool:
        """Rotate: store a new token and expire the old one, in one transaction; False where it is gone."""
        update = f"UPDATE tokens SET expires_at = ? WHERE id = ? AND {_LIVE}"  # noqa: S608 -- our own words
        with self._database.changing() as connection:
            values = (ends_at, token_id, kept.token.created_at)
            if connection.execute(update, values).rowcount != 1:
                return False
            connection.execute(_INSERT, _row(kept))
            return True

    def note_use(self, token_id: str, at: float) -> None:
        """Store when a token was last used."""
        self._changed("UPDATE tokens SET last_used_at = ? WHERE id = ?", at, token_id)

    def revocations(self) -> Sequence[Revocation]:
        """What of identity providers does not count, oldest first."""
        if not self._revoked.is_made():
            return ()
        with self._revoked.using() as connection:
            return MemoryTokens(revoked=_held(connection)).revocations()

    def add_revocation(self, revocation: Revocation, *, most: int) -> bool:
        """Revoke something, and forget what is over; False where there are `most` already."""
        with self._revoked.changing() as connection:
            before = _held(connection)
            held = dict(before)
            is_added = MemoryTokens(revoked=held).add_revocation(revocation, most=most)
            for over in before.keys() - held.keys():
                connection.execute("DELETE FROM revocations WHERE id = ?", (over,))
            for key, one in held.items():
                if before.get(key) is not one:
                    row = key, msgspec.json.encode(one)
                    connection.execute("INSERT OR REPLACE INTO revocations VALUES (?, ?)", row)
            return is_added

    def remove_revocation(self, revocation_id: str) -> bool:
        """Let something count again; False where it was not revoked."""
        with self._revoked.using() as connection:
            statement = "DELETE FROM revocations WHERE id = ?"
            return connection.execute(statement, (revocation_id,)).rowcount == 1

    def close(self) -> None:
        """Close the files."""
        self._database.close()
        self._revoked.close()

    def _changed(self, statement: str, *values: Any) -> bool:
        with self._database.using() as connection:
            return connection.execute(statement, values).rowcount == 1


_INSERT = f"INSERT INTO tokens ({_FIELDS}, secret_hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 -- our own words


def _held(connection: "sqlite3.Connection") -> dict[str, Revocation]:
    rows = connection.execute("SELECT id, content FROM revocations")
    return {key: msgspec.json.decode(content, type=Revocation) for key, content in rows}


def _row(kept: KeptToken) -> tuple[Any, ...]:
    token = kept.token
    scopes = json.dumps(token.scopes)
    times = token.created_at, token.expires_at, token.last_used_at, token.revoked_at
    return (token.id, token.name, scopes, token.agent, *times, kept.secret_hash)


def read_token(row: Sequence[Any]) -> Token:
    """A token from its columns; a scope that this toolkeep does not know grants nothing."""
    token_id, name, scopes, agent, created_at, expires_at, last_used_at, revoked_at = row
    return Token(
        id=token_id,
        name=name,
        scopes=_scopes(scopes),
        agent=agent,
        created_at=created_at,
        expires_at=expires_at,
        last_used_at=last_used_at,
        revoked_at=revoked_at,
    )


def _scopes(text: str) -> tuple[Scope, ...]:
    """The known scopes in a text; none where it cannot be parsed."""
    try:
        named = json.loads(text)
    except ValueError:
        return ()
    return tuple(scope for scope in Scope if isinstance(named, list) and scope.value in named)
