"""Switches, pins and acceptances of one keep in a small SQLite file, `state.db` in the state folder.

Several processes may share it. Reading never makes the folder or the file; the first thing remembered does.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkeep.canonical import canonical_bytes
from toolkeep.errors import StateUnusable
from toolkeep.registry.state import Pin, accepted
from toolkeep.storage.database import check_not_empty, make_whole
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
PRAGMA user_version = 1;
"""
_CONTENTS = (
    "CREATE TABLE IF NOT EXISTS accepted_contents (path TEXT PRIMARY KEY, content TEXT NOT NULL) STRICT"
)
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
        rows = self._read(f"SELECT {_COLUMNS} FROM pins")  # noqa: S608 -- our own words
        try:
            return [_pin(*row) for row in rows]
        except ValueError as error:
            raise self._unusable(error) from error

    def pin(self, pins: Iterable[Pin]) -> list[Pin]:
        """Remember those whose key has no pin yet; what is remembered now for each of them."""
        wanted = list(pins)
        rows = list(map(_row, wanted))
        with self._writing() as connection:
            connection.executemany(f"{_PUT} ON CONFLICT DO NOTHING", rows)
            query = f"SELECT {_COLUMNS} FROM pins WHERE origin = ? AND name = ?"  # noqa: S608 -- our own words
            held = [connection.execute(query, pin.key).fetchone() for pin in wanted]
        # Where it is the very pin that was given, its data is not made a second time.
        return [
            pin if row[:-1] == now else _pin(*now) for pin, row, now in zip(wanted, rows, held, strict=True)
        ]

    def wait_for(self, pin: Pin) -> None:
        """Remember what arrived in place of a pinned definition, unless that was replaced meanwhile."""
        with self._writing() as connection:
            connection.execute(
                "UPDATE pins SET pending_hash = ?, pending = ? "
                "WHERE origin = ? AND name = ? AND definition_hash = ?",
                (pin.pending_hash, _text(pin.pending), *pin.key, pin.definition_hash),
            )

    def take(self, pin: Pin) -> bool:
        """Put what waits in the place of what is pinned; False where something else waits by now."""
        new = accepted(pin)
        with self._writing() as connection:
            changed = connection.execute(
                "UPDATE pins SET definition_hash = ?, version = ?, definition = ?, pending_hash = '', "
                "pending = 'null', written_at = ? WHERE origin = ? AND name = ? "
                "AND definition_hash = ? AND pending_hash = ?",
                (
                    new.definition_hash,
                    new.version,
                    _text(new.definition),
                    _now(),
                    *pin.key,
                    pin.definition_hash,
                    pin.pending_hash,
                ),
            )
            return changed.rowcount == 1

    def replace_pins(self, origins: Iterable[str], pins: Iterable[Pin]) -> None:
        """Put these in the place of all pins of these origins, at once."""
        with self._writing() as connection:
            connection.executemany("DELETE FROM pins WHERE origin = ?", [(origin,) for origin in origins])
            connection.executemany(f"{_PUT} ON CONFLICT DO NOTHING", map(_row, pins))

    def is_accepted(self, path: str, file_hash: str) -> bool:
        """Whether a person accepted the file with exactly this content at this place."""
        query = "SELECT 1 FROM acceptances WHERE path = ? AND file_hash = ?"
        return bool(self._read(query, _path(path), file_hash))

    def accepted_content(self, path: str) -> str | None:
        """What was accepted last of the file at this place, to be compared; it lets nothing count."""
        if not self._read("SELECT 1 FROM sqlite_master WHERE name = 'accepted_contents'"):
            return None  # a state of before contents were kept
        rows = self._read("SELECT content FROM accepted_contents WHERE path = ?", _path(path))
        return rows[0][0] if rows else None

    def accept(self, path: str, file_hash: str, content: str = "") -> None:
        """Remember that a person accepted the file; what was accepted of it before no longer counts."""
        with self._writing() as connection:
            connection.execute(_CONTENTS)
            connection.execute("DELETE FROM accepted_contents WHERE path = ?", (_path(path),))
            if content:
                connection.execute("INSERT INTO accepted_contents VALUES (?, ?)", (_path(path), content))
            connection.execute("DELETE FROM acceptances WHERE path = ?", (_path(path),))
            row = (_path(path), file_hash, _now())
            connection.execute("INSERT INTO acceptances VALUES (?, ?, ?)", row)

    def stamp(self) -> object:
        """Another value after a change of any process; None where nothing was remembered yet.

        Two changes inside one tick of the clock may have the same. The file is not opened: to close it again
        would end every lock that SQLite has on it in this process.
        """
        try:
            found = self._file.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._unusable(error) from error
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _read(self, query: str, *values: str) -> list[tuple[str, ...]]:
        """Rows, without making anything that is not there."""
        try:
            check_not_empty(self._file)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._unusable(error) from error
        check_private(self.folder)
        with self._connection() as connection:
            return connection.execute(query, values).fetchall()

    @contextlib.contextmanager
    def _writing(self) -> Iterator["sqlite3.Connection"]:
        import sqlite3

        make_private(self.folder)
        try:
            make_whole(self._file, _TABLES)
        except (sqlite3.Error, OSError) as error:
            raise self._unusable(error) from error
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
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


_COLUMNS = "origin, name, definition_hash, version, definition, pending_hash, pending"
_PUT = "INSERT INTO pins VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


def _path(path: str) -> str:
    """A path as SQLite can hold it, also where it is not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _text(definition: Any) -> str:
    return canonical_bytes(definition).decode()


def _row(pin: Pin) -> tuple[str, ...]:
    return (
        *pin.key,
        pin.definition_hash,
        pin.version,
        _text(pin.definition),
        pin.pending_hash,
        _text(pin.pending),
        _now(),
    )


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
