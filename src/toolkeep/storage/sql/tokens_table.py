"""Tokens in PostgreSQL, for keeps that share one."""

import json
import threading
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from sqlalchemy import ColumnElement, Connection, Select, func, insert, or_, select, update

from toolkeep.host.after_fork import register_after_fork
from toolkeep.storage.row_key import RowKey
from toolkeep.storage.sql.database_location import DatabaseLocation, connected
from toolkeep.storage.sql.definition_reader import check_layout, find_layout
from toolkeep.storage.sql.engine import changing, leave_to_parent, make_engine, reading
from toolkeep.storage.sql.schema_migration import migrate
from toolkeep.storage.sql.tables import TOKENS
from toolkeep.storage.sqlite.tokens_db import read_token
from toolkeep.stores.api_tokens import KeptToken, Token

_COLUMNS = [column for column in TOKENS.columns if column.name not in ("secret_hash", "mac")]
_ROWS = select(*_COLUMNS, TOKENS.c.secret_hash, TOKENS.c.mac)


class SqlTokens:
    """The table of tokens of keeps that share a database.

    Rows carry a MAC under the keeps' key: whoever can write the database cannot make or extend a token.
    """

    def __init__(self, place: DatabaseLocation, key: RowKey) -> None:
        self._place = place
        self._key = key
        self._engine = make_engine(place)
        self._lock = threading.Lock()
        self._has_layout = False
        register_after_fork(self)

    def leave_to_parent(self) -> None:
        """After fork(), in the child: the connections are the parent's, and no thread holds the lock."""
        self._lock = threading.Lock()
        leave_to_parent(self._engine)

    def add(self, kept: KeptToken, *, most: int) -> bool:
        """Store a token; False where there are `most` already."""
        self._prepare()
        with changing(self._engine, self._place) as connection:
            count = select(func.count()).select_from(TOKENS).where(_is_live(kept.token.created_at))
            if connection.execute(count).scalar_one() >= most:
                return False
            self._insert(connection, kept)
            return True

    def find(self, token_id: str) -> KeptToken | None:
        """The token of an id, if one of the keeps wrote it."""
        self._prepare()
        with reading(self._engine, self._place) as connection:
            return self._found(connection, _ROWS.where(TOKENS.c.id == token_id))

    def all(self) -> Sequence[Token]:
        """Every token, oldest first."""
        self._prepare()
        query = _ROWS.order_by(TOKENS.c.created_at, TOKENS.c.id)
        with reading(self._engine, self._place) as connection:
            kept = [self._authentic(row) for row in connection.execute(query)]
        return [one.token for one in kept if one is not None]

    def revoke(self, token_id: str, at: float) -> bool:
        """Revoke a token; False where there is no valid one."""
        self._prepare()
        with changing(self._engine, self._place) as connection:
            return self._replace(connection, token_id, at, revoked_at=at)

    def exchange(self, token_id: str, kept: KeptToken, *, ends_at: float) -> bool:
        """Rotate: store a new token and expire the old one, in one transaction; False where it is gone."""
        self._prepare()
        with changing(self._engine, self._place) as connection:
            if not self._replace(connection, token_id, kept.token.created_at, expires_at=ends_at):
                return False
            self._insert(connection, kept)
            return True

    def note_use(self, token_id: str, at: float) -> None:
        """Store when a token was last used."""
        self._prepare()
        statement = update(TOKENS).where(TOKENS.c.id == token_id).values(last_used_at=at)
        with changing(self._engine, self._place) as connection:
            connection.execute(statement)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def _insert(self, connection: Connection, kept: KeptToken) -> None:
        connection.execute(insert(TOKENS), {**_row(kept), "mac": self._mac(kept)})

    def _replace(self, connection: Connection, token_id: str, now: float, **changes: float) -> bool:
        """Change a live token; False where there is none."""
        found = self._found(connection, _ROWS.where(TOKENS.c.id == token_id).with_for_update())
        if found is None or not found.token.is_live(now):
            return False
        changed = KeptToken(replace(found.token, **changes), found.secret_hash)
        values = {**changes, "mac": self._mac(changed)}
        connection.execute(update(TOKENS).where(TOKENS.c.id == token_id).values(values))
        return True

    def _found(self, connection: Connection, query: Select[Any]) -> KeptToken | None:
        row = connection.execute(query).first()
        return None if row is None else self._authentic(row)

    def _authentic(self, row: Sequence[Any]) -> KeptToken | None:
        """The token of a row; None where no keep with our key wrote it."""
        *columns, secret_hash, mac = row
        kept = KeptToken(read_token(columns), bytes(secret_hash))
        return kept if self._key.is_authentic(mac, "token", _deciding(kept)) else None

    def _mac(self, kept: KeptToken) -> bytes:
        return self._key.mac("token", _deciding(kept))

    def _prepare(self) -> None:
        """Check the schema; the first process to come migrates it."""
        with self._lock:
            if self._has_layout:
                return
            with connected(self._place) as connection:
                is_ours = check_layout(self._place, find_layout(self._place, connection))
            if not is_ours:
                migrate(self._engine, self._place)
            self._has_layout = True


def _deciding(kept: KeptToken) -> str:
    """What the MAC of a token covers: all but the time of its last use."""
    row = {**_row(kept), "last_used_at": None, "secret_hash": kept.secret_hash.hex()}
    return json.dumps(row, sort_keys=True)


def _is_live(now: float) -> ColumnElement[bool]:
    return TOKENS.c.revoked_at.is_(None) & or_(TOKENS.c.expires_at.is_(None), TOKENS.c.expires_at > now)


def _row(kept: KeptToken) -> dict[str, Any]:
    token = kept.token
    return {
        "id": token.id,
        "name": token.name,
        "scopes": json.dumps(token.scopes),
        "agent": token.agent,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "last_used_at": token.last_used_at,
        "revoked_at": token.revoked_at,
        "secret_hash": kept.secret_hash,
    }
