"""Writes definitions: each change is one transaction that also numbers it and notifies other keeps.

The revision counter is one row, so its lock serializes all changes, and revisions become visible in order: a
reader that has seen a revision has missed none before it. A sequence would not promise that, because a
transaction with a lower number may commit later.
"""

import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from msgspec.structs import replace
from sqlalchemy import Connection, delete, func, insert, select, text, update

from toolkeep.definitions.version_order import precedence
from toolkeep.host.after_fork import register_after_fork
from toolkeep.limits import VERSIONS as LIMIT
from toolkeep.storage.row_key import RowKey
from toolkeep.storage.sql.database_location import CHANNEL, DatabaseLocation
from toolkeep.storage.sql.definition_rows import from_row, to_row
from toolkeep.storage.sql.engine import changing, leave_to_parent, make_engine
from toolkeep.storage.sql.schema_migration import migrate
from toolkeep.storage.sql.tables import CHANGES, DEFINITIONS, NAMES, STATE, VERSIONS
from toolkeep.stores.definitions import (
    BrokenDefinition,
    StoredDefinition,
    changed_meanwhile,
    names_of,
    newest_first,
    refuse_taken,
)


class DefinitionWriter:
    """Changes one database. Raises a `ToolkeepError`, and then nothing was changed."""

    def __init__(self, place: DatabaseLocation, key: RowKey | None = None) -> None:
        self._place = place
        self._key = key
        self._engine = make_engine(place)
        register_after_fork(self)

    def leave_to_parent(self) -> None:
        """After fork(), in the child: the connections are the parent's."""
        leave_to_parent(self._engine)

    def migrate(self) -> None:
        """Make the tables, or move them to this toolkeep's layout."""
        migrate(self._engine, self._place)

    def create(self, new: StoredDefinition, *, check: Callable[[int], None]) -> StoredDefinition:
        """Keep a new definition, unless a name is taken or `check` raises for how many there are."""
        with changing(self._engine, self._place) as connection:
            kept = self._numbered(connection, new, "created", new.updated_by)
            custom = select(func.count()).select_from(DEFINITIONS).where(DEFINITIONS.c.is_built_in.is_(False))
            check(connection.execute(custom).scalar_one())
            taken = select(DEFINITIONS.c.name).where(DEFINITIONS.c.name.in_(kept.names))
            for name in connection.execute(taken).scalars():
                refuse_taken(name, name)
            self._claim_names(connection, kept, kept.names)
            connection.execute(insert(DEFINITIONS), to_row(kept, self._key))
            return kept

    def replace(self, new: StoredDefinition, *, revision: int) -> StoredDefinition:
        """Keep a higher version; the one before becomes an earlier one."""
        with changing(self._engine, self._place) as connection:
            kept = self._numbered(connection, new, "updated", new.updated_by)
            self._refuse_changed(connection, new, revision)
            same = DEFINITIONS.c.id == uuid.UUID(new.id)
            columns = [column.name for column in DEFINITIONS.columns]
            connection.execute(insert(VERSIONS).from_select(columns, select(DEFINITIONS).where(same)))
            earlier = newest_first(self._versions(connection, new))
            self._claim_names(connection, kept, names_of([kept, *earlier[: LIMIT - 1]]))
            for one in earlier[LIMIT - 1 :]:
                which = (VERSIONS.c.id == uuid.UUID(one.id)) & (VERSIONS.c.version == one.definition.version)
                connection.execute(delete(VERSIONS).where(which))
            connection.execute(update(DEFINITIONS).where(same).values(to_row(kept, self._key)))
            return kept

    def switch(self, new: StoredDefinition, *, revision: int) -> StoredDefinition:
        """Enable or disable every version of a tool."""
        with changing(self._engine, self._place) as connection:
            kept = self._numbered(connection, new, "switched", new.updated_by)
            self._refuse_changed(connection, new, revision)
            enabled = new.definition.enabled
            for one in self._versions(connection, new):
                row = to_row(replace(one, definition=one.definition.replace(enabled=enabled)), self._key)
                same = (VERSIONS.c.id == row["id"]) & (VERSIONS.c.version == row["version"])
                connection.execute(update(VERSIONS).where(same).values(row))
            same = DEFINITIONS.c.id == uuid.UUID(new.id)
            connection.execute(update(DEFINITIONS).where(same).values(to_row(kept, self._key)))
            return kept

    def delete(self, old: StoredDefinition, *, by: str) -> None:
        """Let go of every version of a tool."""
        with changing(self._engine, self._place) as connection:
            self._numbered(connection, old, "deleted", by)
            self._refuse_changed(connection, old, old.revision)
            which = uuid.UUID(old.id)
            connection.execute(delete(NAMES).where(NAMES.c.definition_id == which))
            connection.execute(delete(VERSIONS).where(VERSIONS.c.id == which))
            connection.execute(delete(DEFINITIONS).where(DEFINITIONS.c.id == which))

    def seal(self) -> list[str]:
        """Give rows without a MAC, from before there was a key, that of the servers; their names."""
        sealed: dict[str, None] = {}
        with changing(self._engine, self._place) as connection:
            for table in (DEFINITIONS, VERSIONS):
                bare = select(table).where(table.c.mac.is_(None), table.c.is_built_in.is_(False))
                for row in connection.execute(bare).mappings().all():
                    stored = from_row(dict(row))
                    if not isinstance(stored, BrokenDefinition):
                        same = (table.c.id == row["id"]) & (table.c.version == row["version"])
                        connection.execute(update(table).where(same).values(to_row(stored, self._key)))
                        sealed[stored.name] = None
        return list(sealed)

    def note_built_ins(self, tools: Iterable[StoredDefinition]) -> None:
        """Keep rows of the built-in tools; a newer toolkeep's stay."""
        with changing(self._engine, self._place) as connection:
            built_in = select(DEFINITIONS).where(DEFINITIONS.c.is_built_in.is_(True))
            held = {row["name"]: row for row in connection.execute(built_in).mappings()}
            for tool in tools:
                row = held.get(tool.name)
                if row is None:
                    self._add_built_in(connection, tool)
                elif _is_older(row["version"], tool) and row["definition_hash"] != tool.definition.hash:
                    kept = replace(tool, id=str(row["id"]), created_at=row["created_at"])
                    same = DEFINITIONS.c.id == row["id"]
                    connection.execute(update(DEFINITIONS).where(same).values(to_row(kept, self._key)))

    def close(self) -> None:
        """Let go of the connections."""
        self._engine.dispose()

    def _add_built_in(self, connection: Connection, tool: StoredDefinition) -> None:
        """A custom tool may have the name from before there was a built-in one; it keeps its row."""
        taken = select(DEFINITIONS.c.id).where(DEFINITIONS.c.name == tool.name)
        if connection.execute(taken).first() is None:
            connection.execute(insert(DEFINITIONS), to_row(tool, self._key))

    def _numbered(
        self, connection: Connection, stored: StoredDefinition, kind: str, by: str
    ) -> StoredDefinition:
        """The definition with the number of this change, which is noted and told."""
        count = update(STATE).values(revision=STATE.c.revision + 1).returning(STATE.c.revision)
        revision = connection.execute(count).scalar_one()
        change = {
            "revision": revision,
            "name": stored.name,
            "kind": kind,
            "changed_by_name": by or None,
            "changed_at": datetime.now(UTC),
        }
        connection.execute(insert(CHANGES), change)
        if not self._place.is_embedded:
            connection.execute(text(f"NOTIFY {CHANNEL}"))
        return replace(stored, revision=revision)

    def _refuse_changed(self, connection: Connection, stored: StoredDefinition, revision: int) -> None:
        query = select(DEFINITIONS.c.revision).where(DEFINITIONS.c.id == uuid.UUID(stored.id))
        if connection.execute(query).scalar_one_or_none() != revision:
            raise changed_meanwhile(stored.name)

    def _versions(self, connection: Connection, stored: StoredDefinition) -> list[StoredDefinition]:
        rows = connection.execute(select(VERSIONS).where(VERSIONS.c.id == uuid.UUID(stored.id))).mappings()
        found = [from_row(dict(row), self._key) for row in rows]
        return [one for one in found if not isinstance(one, BrokenDefinition)]

    def _claim_names(self, connection: Connection, stored: StoredDefinition, names: Iterable[str]) -> None:
        """All names of a tool are its own; raises where one is another's."""
        wanted = set(names)
        which = uuid.UUID(stored.id)
        others = select(NAMES.c.name, DEFINITIONS.c.name).join_from(
            NAMES, DEFINITIONS, NAMES.c.definition_id == DEFINITIONS.c.id
        )
        taken = connection.execute(others.where(NAMES.c.name.in_(wanted), NAMES.c.definition_id != which))
        for name, holder in taken:
            refuse_taken(name, holder)
        connection.execute(delete(NAMES).where(NAMES.c.definition_id == which))
        connection.execute(insert(NAMES), [{"name": name, "definition_id": which} for name in sorted(wanted)])


def _is_older(version: str, tool: StoredDefinition) -> bool:
    """Whether a built-in row is not of a newer toolkeep than this one."""
    return precedence(version) <= precedence(tool.definition.version)
