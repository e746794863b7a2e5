"""Reads stored definitions over a plain connection: a few statements that SQLite and PostgreSQL share."""

from collections.abc import Sequence
from typing import Any, Final

from toolkeep.errors import StoreLayoutUnfit
from toolkeep.registry.store import BrokenDefinition, Contents, Family, StoredDefinition, newest_first
from toolkeep.registry.versions import fold
from toolkeep.storage.definition_rows import COLUMNS, from_row
from toolkeep.storage.places import HEAD, LAYOUT_TABLE, SCHEMA, Place, connected

_ALL: Final = ", ".join(COLUMNS)
_TABLES: Final = ("tool_definitions", "tool_definition_versions")


def find_layout(place: Place, connection: Any) -> str | None:
    """Which migration was run last; None where nothing was made yet."""
    if place.is_embedded:
        query = f"SELECT count(*) FROM sqlite_master WHERE name = '{LAYOUT_TABLE}'"  # noqa: S608 -- our own words
    else:
        named = f"schemaname = '{SCHEMA}' AND tablename = '{LAYOUT_TABLE}'"
        query = f"SELECT count(*) FROM pg_tables WHERE {named}"  # noqa: S608 -- our own words
    if not connection.execute(query).fetchone()[0]:
        return None
    row = connection.execute(f"SELECT version_num FROM {place.prefix}{LAYOUT_TABLE}").fetchone()  # noqa: S608 -- our own words
    return None if row is None else str(row[0])


def check_layout(place: Place, layout: str | None) -> bool:
    """Whether the tables are ours as they are; False where they are older. Raises where they are newer."""
    if layout == HEAD:
        return True
    if layout is None or (layout.isdecimal() and layout < HEAD):
        return False
    hint = "use that toolkeep, or take its tables down with it: toolkeep store migrate"
    raise StoreLayoutUnfit(place.shown, "were made by a newer toolkeep", hint=hint)


class DefinitionReader:
    """Reads one database."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def contents(self) -> Contents | None:
        """Every custom definition; None where the tables have to be made or moved first."""
        with connected(self._place) as connection:
            connection.execute(self._begin)  # one moment: the revision is that of what is read
            layout = find_layout(self._place, connection)
            if not check_layout(self._place, layout):
                connection.execute("ROLLBACK")
                return None
            revision = self._revision(connection)
            held = [
                from_row(dict(zip(COLUMNS, row, strict=True)))
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
            hint = "mend the row, or delete it, in the database itself"
            raise StoreLayoutUnfit(self._place.shown, f"hold {name!r}, which {current.reason}", hint=hint)
        earlier = [one for one in found[1] if isinstance(one, StoredDefinition)]
        return Family(current=current, earlier=newest_first(earlier))

    def changed_since(self, revision: int) -> tuple[int, frozenset[str]]:
        """The revision of the last change, and the names of tools that changed since one."""
        with connected(self._place) as connection:
            return self.changes(connection, revision)

    def changes(self, connection: Any, revision: int) -> tuple[int, frozenset[str]]:
        """The same over a connection that is open."""
        place = self._place
        last = self._revision(connection)  # first: what is changed in between is seen twice, and not missed
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
        return [from_row(dict(zip(COLUMNS, row, strict=True))) for row in rows]
