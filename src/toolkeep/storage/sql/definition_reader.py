"""Reads stored definitions by plain statements that SQLite and PostgreSQL share.

Every start reads, so this module imports no SQLAlchemy.
"""

from collections.abc import Sequence
from typing import Any, Final

from toolkeep.definitions.version_order import fold
from toolkeep.errors import StoreLayoutUnfit
from toolkeep.storage.row_key import RowKey
from toolkeep.storage.sql.database_location import HEAD, LAYOUT_TABLE, SCHEMA, DatabaseLocation, connected
from toolkeep.storage.sql.definition_rows import COLUMNS, from_row
from toolkeep.stores.definitions import BrokenDefinition, Contents, Family, StoredDefinition, newest_first

_ALL: Final = ", ".join(COLUMNS)
_TABLES: Final = ("tool_definitions", "tool_definition_versions")


def find_layout(place: DatabaseLocation, connection: Any) -> str | None:
    """The current migration; None where there are no tables yet."""
    if place.is_embedded:
        query = f"SELECT count(*) FROM sqlite_master WHERE name = '{LAYOUT_TABLE}'"  # noqa: S608 -- our own words
    else:
        named = f"schemaname = '{SCHEMA}' AND tablename = '{LAYOUT_TABLE}'"
        query = f"SELECT count(*) FROM pg_tables WHERE {named}"  # noqa: S608 -- our own words
    if not connection.execute(query).fetchone()[0]:
        return None
    row = connection.execute(f"SELECT version_num FROM {place.prefix}{LAYOUT_TABLE}").fetchone()  # noqa: S608 -- our own words
    return None if row is None else str(row[0])


def check_layout(place: DatabaseLocation, layout: str | None) -> bool:
    """Whether the schema is current; False where it is older or missing. Raises where it is newer.

    An older toolkeep would write definitions without the columns that it does not know.
    """
    if layout == HEAD:
        return True
    if layout is None or (layout.isdecimal() and layout < HEAD):
        return False
    hint = "use that toolkeep, or take its tables down with it: toolkeep store migrate"
    reason = f"have layout {layout!r}, but this toolkeep supports only up to {HEAD!r}"
    raise StoreLayoutUnfit(place.shown, reason, hint=hint)


class DefinitionReader:
    """Reads one database."""

    def __init__(self, place: DatabaseLocation, key: RowKey | None = None) -> None:
        self._place = place
        self._key = key

    def contents(self) -> Contents | None:
        """Every custom definition; None where the tables have to be migrated first."""
        with connected(self._place) as connection:
            connection.execute(self._begin)  # one snapshot: the revision is that of these rows
            layout = find_layout(self._place, connection)
            if not check_layout(self._place, layout):
                connection.execute("ROLLBACK")
                return None
            revision = self._revision(connection)
            held = [
                from_row(dict(zip(COLUMNS, row, strict=True)), self._key)
                for table in _TABLES
                for row in connection.execute(
                    f"SELECT {_ALL} FROM {self._place.prefix}{table} "  # noqa: S608 -- our own words
                    "WHERE NOT is_built_in ORDER BY created_at, name"
                )
            ]
            connection.execute("ROLLBACK")
        return Contents(revision=revision, held=tuple(held))

    def family(self, name: str) -> Family | None:
        """The versions of one tool; a broken row counts as none, unless it is the newest."""
        with connected(self._place) as connection:
            connection.execute(self._begin)
            found = [self._named(connection, table, name) for table in _TABLES]
            connection.execute("ROLLBACK")
        if not found[0]:
            return None
        current = found[0][0]
        if isinstance(current, BrokenDefinition):
            hint = "fix the row, or delete it, in the database itself"
            raise StoreLayoutUnfit(self._place.shown, f"hold {name!r}, which {current.reason}", hint=hint)
        earlier = [one for one in found[1] if isinstance(one, StoredDefinition)]
        return Family(current=current, earlier=newest_first(earlier))

    def changed_since(self, revision: int) -> tuple[int, frozenset[str]]:
        """The revision of the last change, and the names of tools that changed since one."""
        with connected(self._place) as connection:
            return self.changes(connection, revision)

    def changes(self, connection: Any, revision: int) -> tuple[int, frozenset[str]]:
        """The same over an open connection."""
        place = self._place
        last = self._revision(connection)  # first: a change in between is read twice, not missed
        table = f"{place.prefix}tool_definition_changes"
        query = f"SELECT revision, name FROM {table} WHERE revision > {place.mark}"  # noqa: S608 -- our own words
        rows = connection.execute(query, (revision,)).fetchall()
        return last, frozenset(row[1] for row in rows)

    @property
    def _begin(self) -> str:
        return "BEGIN" if self._place.is_embedded else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

    def _revision(self, connection: Any) -> int:
        query = f"SELECT revision FROM {self._place.prefix}tool_store_state"  # noqa: S608 -- our own words
        return int(connection.execute(query).fetchone()[0])

    def _named(self, connection: Any, table: str, name: str) -> Sequence[StoredDefinition | BrokenDefinition]:
        place = self._place
        query = f"SELECT {_ALL} FROM {place.prefix}{table} WHERE name = {place.mark}"  # noqa: S608 -- our own words
        rows = connection.execute(query, (fold(name),)).fetchall()
        return [from_row(dict(zip(COLUMNS, row, strict=True)), self._key) for row in rows]
