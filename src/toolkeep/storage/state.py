"""Switches, pins and acceptances of one keep in a small SQLite file, `state.db` in the state folder.

Several processes may share it. Reading never makes the folder or the file; the first thing remembered does.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from toolkeep.canonical import canonical_bytes
from toolkeep.errors import StateUnusable
from toolkeep.registry.state import Pin
from toolkeep.storage.folder import check_private, make_private

if TYPE_CHECKING:
    import sqlite3

_TABLES = """
CREATE TABLE IF NOT EXISTS switches (tool TEXT PRIMARY KEY, enabled INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS pins (
    origin TEXT NOT NULL, name TEXT NOT NULL, definition_hash TEXT NOT NULL, version TEXT NOT NULL,
    definition TEXT NOT NULL, pending_hash TEXT NOT NULL, pending TEXT NOT NULL, written_at TEXT NOT NULL,
    PRIMARY KEY (origin, name)
) STRICT;
CREATE TABLE IF NOT EXISTS acceptances (
    path TEXT NOT NULL, file_hash TEXT NOT NULL, accepted_at TEXT NOT NULL, PRIMARY KEY (path, file_hash)
) STRICT;
"""
_LAYOUT = 1
_BUSY_SECONDS = 10.0


class KeepState:
    """What one keep remembers between its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "state.db"

    def switches(self) -> Mapping[str, bool]:
        """Enabled or disabled by folded `name` or `name@version`."""
        return {tool: bool(enabled) for tool, enabled in self._read("SELECT tool, enabled FROM switches")}

    def put_switch(self, switch: str, *, enabled: bool) -> None:
        """Remember one; a `name` takes the place of those of its versions."""
        with self._writing() as connection:
            connection.execute(
                "DELETE FROM switches WHERE substr(tool, 1, length(?) + 1) = ? || '@'", (switch, switch)
            )
            connection.execute("INSERT OR REPLACE INTO switches VALUES (?, ?)", (switch, enabled))

    def pins(self) -> Iterable[Pin]:
        """Every pin."""
        columns = "origin, name, definition_hash, version, definition, pending_hash, pending"
        rows = self._read(f"SELECT {columns} FROM pins")  # noqa: S608 -- our own words
        try:
            return [_pin(*row) for row in rows]
        except ValueError as error:
            raise self._unusable(error) from error

    def put_pins(self, pins: Iterable[Pin]) -> None:
        """Remember these, each instead of the one with its key."""
        now = datetime.now(UTC).isoformat()
        rows = [
            (
                pin.origin,
                pin.name,
                pin.definition_hash,
                pin.version,
                canonical_bytes(pin.definition).decode(),
                pin.pending_hash,
                canonical_bytes(pin.pending).decode(),
                now,
            )
            for pin in pins
        ]
        with self._writing() as connection:
            connection.executemany("INSERT OR REPLACE INTO pins VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def is_accepted(self, path: str, file_hash: str) -> bool:
        """Whether a person accepted the file with exactly this content at this place."""
        query = "SELECT 1 FROM acceptances WHERE path = ? AND file_hash = ?"
        return bool(self._read(query, path, file_hash))

    def accept(self, path: str, file_hash: str) -> None:
        """Remember that a person accepted the file; what was accepted of it before no longer counts."""
        with self._writing() as connection:
            connection.execute("DELETE FROM acceptances WHERE path = ?", (path,))
            row = (path, file_hash, datetime.now(UTC).isoformat())
            connection.execute("INSERT INTO acceptances VALUES (?, ?, ?)", row)

    def _read(self, query: str, *values: str) -> list[tuple[str, ...]]:
        """Rows, without making anything that is not there."""
        if not self._file.exists():
            return []
        check_private(self.folder)
        with self._connection() as connection:
            if not connection.execute("PRAGMA user_version").fetchone()[0]:
                return []  # somebody is about to write for the first time
            return connection.execute(query, values).fetchall()

    @contextlib.contextmanager
    def _writing(self) -> Iterator["sqlite3.Connection"]:
        make_private(self.folder)
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            if not connection.execute("PRAGMA user_version").fetchone()[0]:
                for statement in _TABLES.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_LAYOUT}")
            yield connection
            connection.execute("COMMIT")

    @contextlib.contextmanager
    def _connection(self) -> Iterator["sqlite3.Connection"]:
        """A connection of its own for each use: nothing stays open, and no thread shares one."""
        import sqlite3

        try:
            connection = sqlite3.connect(self._file, timeout=_BUSY_SECONDS, isolation_level=None)
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        try:
            yield connection
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        finally:
            connection.close()

    def _unusable(self, error: Exception) -> StateUnusable:
        hint = "see that the folder is writable and the disk not full, or move the file away"
        return StateUnusable(str(self._file), f"cannot be used: {error}", hint=hint)


def _pin(
    origin: str,
    name: str,
    definition_hash: str,
    version: str,
    definition: str,
    pending_hash: str,
    pending: str,
) -> Pin:
    return Pin(
        origin=origin,
        name=name,
        definition_hash=definition_hash,
        version=version,
        definition=json.loads(definition),
        pending_hash=pending_hash,
        pending=json.loads(pending),
    )
