"""Tokens in PostgreSQL, for keeps that share one."""

import json
import threading
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, func, insert, or_, select, update

from toolkeep.host.after_fork import register_after_fork
from toolkeep.storage.sql.database_location import DatabaseLocation, connected
from toolkeep.storage.sql.definition_reader import check_layout, find_layout
from toolkeep.storage.sql.engine import changing, leave_to_parent, make_engine, reading
from toolkeep.storage.sql.schema_migration import migrate
from toolkeep.storage.sql.tables import TOKENS
from toolkeep.storage.sqlite.tokens_db import read_token
from toolkeep.stores.api_tokens import KeptToken, Token

_COLUMNS = [column for column in TOKENS.columns if column.name != "secret_hash"]


class SqlTokens:
    """The table of tokens of keeps that share a database."""

    def __init__(self, place: DatabaseLocation) -> None:
        self._place = place
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
            connection.execute(insert(TOKENS), _row(kept))
            return True

    def find(self, token_id: str) -> KeptToken | None:
        """The token of an id."""
        self._prepare()
        query = select(*_COLUMNS, TOKENS.c.secret_hash).where(TOKENS.c.id == token_id)
        with reading(self._engine, self._place) as connection:
            row = connection.execute(query).first()
        return None if row is None else KeptToken(read_token(row[:-1]), bytes(row[-1]))

    def all(self) -> Sequence[Token]:
        """Every token, oldest first."""
        self._prepare()
        query = select(*_COLUMNS).order_by(TOKENS.c.created_at, TOKENS.c.id)
        with changing(self._engine, self._place) as connection:
            return [read_token(row) for row in connection.execute(query)]

    def revoke(self, token_id: str, at: float) -> bool:
        """Revoke a token; False where there is no valid one."""
        return self._changed(token_id, _is_live(at), revoked_at=at)

    def exchange(self, token_id: str, kept: KeptToken, *, ends_at: float) -> bool:
        """Rotate: store a new token and expire the old one, in one transaction; False where it is gone."""
        self._prepare()
        live = (TOKENS.c.id == token_id) & _is_live(kept.token.created_at)
        with changing(self._engine, self._place) as connection:
            if connection.execute(update(TOKENS).where(live).values(expires_at=ends_at)).rowcount != 1:
                return False
            connection.execute(insert(TOKENS), _row(kept))
            return True

    def note_use(self, token_id: str, at: float) -> None:
        """Store when a token was last used."""
        self._changed(token_id, last_used_at=at)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def _changed(self, token_id: str, *conditions: ColumnElement[bool], **values: Any) -> bool:
        self._prepare()
        statement = update(TOKENS).where(TOKENS.c.id == token_id, *conditions).values(values)
        with changing(self._engine, self._place) as connection:
            return connection.execute(statement).rowcount == 1

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
