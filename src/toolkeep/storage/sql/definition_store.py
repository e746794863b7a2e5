"""The store of a keep: reads by plain statements, and imports the writer (SQLAlchemy) on the first change.

A keep without stored definitions, which most are, imports neither reader nor writer.
"""

import threading
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from toolkeep.host.after_fork import register_after_fork
from toolkeep.storage.sql.database_location import DatabaseLocation, connected

if TYPE_CHECKING:
    from toolkeep.storage.row_key import RowKey
    from toolkeep.storage.sql.definition_reader import DefinitionReader
    from toolkeep.storage.sql.definition_writer import DefinitionWriter
    from toolkeep.stores.definitions import Contents, Family, StoredDefinition


class SqlDefinitionStore:
    """Definitions in SQLite or PostgreSQL. Reading an embedded store makes nothing that is not there."""

    def __init__(self, place: DatabaseLocation, key: "RowKey | None" = None) -> None:
        """`key` is that of the servers that share the database."""
        self.place = place
        self._key = key
        self._lock = threading.Lock()
        self._writer: DefinitionWriter | None = None
        self._has_layout = False
        register_after_fork(self)

    @cached_property
    def reader(self) -> "DefinitionReader":
        """Reads the tables."""
        from toolkeep.storage.sql.definition_reader import DefinitionReader

        return DefinitionReader(self.place, self._key)

    def leave_to_parent(self) -> None:
        """After fork(), in the child: replace a lock that a thread of the parent may hold."""
        self._lock = threading.Lock()

    def read(self) -> "Contents":
        """Every custom definition."""
        from toolkeep.stores.definitions import Contents

        empty = Contents(revision=0, held=())
        if not self.place.exists():
            return empty
        contents = self.reader.contents()
        if contents is None:
            self._writing()
            contents = self.reader.contents()
        self._has_layout = contents is not None
        return contents or empty

    def find(self, name: str) -> "Family | None":
        """The versions of one tool, of a built-in one too."""
        if not self.place.exists():
            return None
        if not self._has_layout:
            self._writing()
        return self.reader.family(name)

    def create(self, new: "StoredDefinition", *, check: Callable[[int], None]) -> "StoredDefinition":
        """Keep a new definition, unless a name is taken or `check` raises for how many there are."""
        return self._writing().create(new, check=check)

    def replace(self, new: "StoredDefinition", *, revision: int) -> "StoredDefinition":
        """Keep a higher version over the one that has this revision, which becomes an earlier one."""
        return self._writing().replace(new, revision=revision)

    def switch(self, new: "StoredDefinition", *, revision: int) -> "StoredDefinition":
        """Enable or disable every version of a tool whose newest one has this revision."""
        return self._writing().switch(new, revision=revision)

    def delete(self, old: "StoredDefinition", *, by: str) -> None:
        """Let go of every version of a tool, if its newest one still is this."""
        self._writing().delete(old, by=by)

    def changed_since(self, revision: int) -> tuple[int, frozenset[str]]:
        """The revision of the last change, and the names of tools that changed since one."""
        return self.reader.changed_since(revision)

    def seal(self) -> list[str]:
        """Take the definitions from before the servers had a key for their own; their names."""
        return self._writing().seal()

    def note_built_ins(self, tools: "Iterable[StoredDefinition]") -> None:
        """Keep rows of the built-in tools, for whoever reads the table."""
        self._writing().note_built_ins(tools)

    def close(self) -> None:
        """Let go of what is open."""
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _writing(self) -> "DefinitionWriter":
        """The writer, over migrated tables; the first process to come migrates them."""
        from toolkeep.storage.sql.definition_reader import check_layout, find_layout
        from toolkeep.storage.sql.definition_writer import DefinitionWriter

        with self._lock:
            writer = self._writer = self._writer or DefinitionWriter(self.place, self._key)
            if not self._has_layout:
                with connected(self.place) as connection:
                    is_ours = check_layout(self.place, find_layout(self.place, connection))
                if not is_ours:
                    writer.migrate()
                self._has_layout = True
        return writer
