"""Switches, pins, acceptances, declared flow and policies of one keep in a small SQLite file, `state.db`.

Several processes may share it. Reading never makes the folder or the file; the first thing remembered does.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.storage.sqlite.database import Database
from toolkeep.stores.registry_state import DeclaredFlow, Pin, StoredPolicies, accepted

_TABLES = """
CREATE TABLE switches (tool TEXT PRIMARY KEY, enabled INTEGER NOT NULL) STRICT;
CREATE TABLE pins (
    origin TEXT NOT NULL, name TEXT NOT NULL, definition_hash TEXT NOT NULL, version TEXT NOT NULL,
    definition TEXT NOT NULL, pending_hash TEXT NOT NULL, pending TEXT NOT NULL, written_at TEXT NOT NULL,
    PRIMARY KEY (origin, name)
) STRICT;
CREATE TABLE acceptances (
    path TEXT NOT NULL, file_hash TEXT NOT NULL, accepted_at TEXT NOT NULL, PRIMARY KEY (path, file_hash)
) STRICT;
CREATE TABLE accepted_contents (path TEXT PRIMARY KEY, content TEXT NOT NULL) STRICT;
"""
_FLOWS = """
CREATE TABLE IF NOT EXISTS declared_flows (
    origin TEXT NOT NULL, name TEXT NOT NULL, definition_hash TEXT NOT NULL, declared TEXT NOT NULL,
    declared_by TEXT NOT NULL, written_at TEXT NOT NULL, PRIMARY KEY (origin, name)
) STRICT
"""
"""Made when the first flow is declared: states of before have no such table."""
_POLICIES = """
CREATE TABLE IF NOT EXISTS policies (
    name TEXT PRIMARY KEY, text TEXT NOT NULL, examples TEXT NOT NULL, put_by TEXT NOT NULL,
    put_at TEXT NOT NULL
) STRICT
"""
"""Made when the first policies are put in force."""


class StateFollower(Protocol):
    """Follows a state."""

    def close(self) -> None:
        """Stop."""


class KeepState:
    """What one keep remembers between its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        hint = "check that the folder is writable and the disk is not full, or move the file away"
        # No write-ahead log: `stamp` must see every change in the file itself. It does not stay open, because
        # a state is never closed.
        self._database = Database(folder / "state.db", "", _TABLES, stays_open=False, hint=hint)

    def switches(self) -> Mapping[str, bool]:
        """Enabled or disabled by folded `name` or `name@version`."""
        return {tool: bool(enabled) for tool, enabled in self._read("SELECT tool, enabled FROM switches")}

    def put_switch(self, switch: str, *, enabled: bool) -> None:
        """Store a switch; one for a `name` replaces those for its versions."""
        with self._database.changing() as connection:
            connection.execute(
                "DELETE FROM switches WHERE substr(tool, 1, length(?) + 1) = ? || '@'", (switch, switch)
            )
            connection.execute("INSERT OR REPLACE INTO switches VALUES (?, ?)", (switch, enabled))

    def problem(self) -> str:
        """Always known: the processes of a keep share the file."""
        return ""

    def follow(self, follow: Callable[[], object]) -> "StateFollower":
        """Call `follow` after each change by another process, until it is closed."""
        from toolkeep.storage.sql.change_feed import StateChangeFeed

        return StateChangeFeed(self.stamp, follow)

    def pins(self) -> Iterable[Pin]:
        """Every pin."""
        rows = self._read(f"SELECT {_COLUMNS} FROM pins")  # noqa: S608 -- our own words
        try:
            return [_pin(*row) for row in rows]
        except ValueError as error:
            raise self._database.unusable(error) from error

    def pin(self, pins: Iterable[Pin]) -> list[Pin]:
        """Store the pins whose key has none yet; the stored pin for each of them.

        Trust on first use: a later definition under the same key never replaces a pin by itself.
        """
        wanted = list(pins)
        rows = list(map(_row, wanted))
        with self._database.changing() as connection:
            connection.executemany(f"{_PUT} ON CONFLICT DO NOTHING", rows)
            query = f"SELECT {_COLUMNS} FROM pins WHERE origin = ? AND name = ?"  # noqa: S608 -- our own words
            held = [connection.execute(query, pin.key).fetchone() for pin in wanted]
        # Where the stored row is the given pin, its data is not parsed again.
        return [
            pin if row[:-1] == now else _pin(*now) for pin, row, now in zip(wanted, rows, held, strict=True)
        ]

    def wait_for(self, pin: Pin) -> None:
        """Store a changed definition as pending, unless the pin was replaced meanwhile."""
        with self._database.changing() as connection:
            connection.execute(
                "UPDATE pins SET pending_hash = ?, pending = ? "
                "WHERE origin = ? AND name = ? AND definition_hash = ?",
                (pin.pending_hash, _text(pin.pending), *pin.key, pin.definition_hash),
            )

    def take(self, pin: Pin) -> bool:
        """Replace the pin by the pending definition; False where another one is pending by now.

        Compare and set: otherwise a person accepts what they saw, and gets what arrived a moment later.
        """
        new = accepted(pin)
        with self._database.changing() as connection:
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
        """Replace all pins of these origins, in one transaction; flow goes with the last pin of its tool."""
        with self._database.changing() as connection:
            connection.executemany("DELETE FROM pins WHERE origin = ?", [(origin,) for origin in origins])
            connection.executemany(f"{_PUT} ON CONFLICT DO NOTHING", map(_row, pins))
            connection.execute(_FLOWS)
            connection.execute(
                "DELETE FROM declared_flows WHERE (origin, name) NOT IN (SELECT origin, name FROM pins)"
            )

    def flows(self) -> Iterable[DeclaredFlow]:
        """Every declared flow."""
        if not self._has_table("declared_flows"):
            return []
        rows = self._read("SELECT origin, name, definition_hash, declared, declared_by FROM declared_flows")
        try:
            return [
                DeclaredFlow(
                    origin=origin, name=name, definition_hash=seen, declared=json.loads(text), declared_by=by
                )
                for origin, name, seen, text, by in rows
            ]
        except ValueError as error:
            raise self._database.unusable(error) from error

    def put_flow(self, flow: DeclaredFlow) -> None:
        """Store the declared flow of a tool, instead of an earlier one."""
        row = (*flow.key, flow.definition_hash, _text(flow.declared), flow.declared_by, _now())
        with self._database.changing() as connection:
            connection.execute(_FLOWS)
            connection.execute("INSERT OR REPLACE INTO declared_flows VALUES (?, ?, ?, ?, ?, ?)", row)

    def drop_flow(self, key: tuple[str, str]) -> None:
        """Forget the declared flow of a tool."""
        with self._database.changing() as connection:
            connection.execute(_FLOWS)
            connection.execute("DELETE FROM declared_flows WHERE origin = ? AND name = ?", key)

    def policies(self) -> Iterable[StoredPolicies]:
        """The policies that people put in force, by name."""
        if not self._has_table("policies"):
            return []
        rows = self._read("SELECT name, text, examples, put_by, put_at FROM policies ORDER BY name")
        return [
            StoredPolicies(name=name, text=text, examples=examples, put_by=by, put_at=at)
            for name, text, examples, by, at in rows
        ]

    def put_policies(self, name: str, stored: StoredPolicies | None) -> None:
        """Store policies instead of earlier ones of that name; None removes them."""
        with self._database.changing() as connection:
            connection.execute(_POLICIES)
            connection.execute("DELETE FROM policies WHERE name = ?", (name,))
            if stored is not None:
                row = (name, stored.text, stored.examples, stored.put_by, stored.put_at)
                connection.execute("INSERT INTO policies VALUES (?, ?, ?, ?, ?)", row)

    def _has_table(self, name: str) -> bool:
        return bool(self._read("SELECT 1 FROM sqlite_master WHERE name = ?", name))

    def is_accepted(self, path: str, file_hash: str) -> bool:
        """Whether a person accepted the file at this path with exactly this content."""
        query = "SELECT 1 FROM acceptances WHERE path = ? AND file_hash = ?"
        return bool(self._read(query, _path(path), file_hash))

    def accepted_content(self, path: str) -> str | None:
        """The content accepted last for this path, for a diff only; it accepts nothing."""
        rows = self._read("SELECT content FROM accepted_contents WHERE path = ?", _path(path))
        return rows[0][0] if rows else None

    def accepted_paths(self) -> list[str]:
        """Every path that has an acceptance with content."""
        return [path for (path,) in self._read("SELECT path FROM accepted_contents ORDER BY path")]

    def accept(self, path: str, file_hash: str, content: str = "") -> None:
        """Store that a person accepted the file; earlier contents are no longer accepted."""
        with self._database.changing() as connection:
            connection.execute("DELETE FROM accepted_contents WHERE path = ?", (_path(path),))
            if content:
                connection.execute("INSERT INTO accepted_contents VALUES (?, ?)", (_path(path), content))
            connection.execute("DELETE FROM acceptances WHERE path = ?", (_path(path),))
            row = (_path(path), file_hash, _now())
            connection.execute("INSERT INTO acceptances VALUES (?, ?, ?)", row)

    def stamp(self) -> object:
        """A value that changes with every write of any process; None where nothing is stored yet.

        Two writes within one tick of the clock may share it. The file is not opened: closing it would drop
        every lock that SQLite has on it in this process.
        """
        try:
            found = self._database.file.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._database.unusable(error) from error
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _read(self, query: str, *values: str) -> list[tuple[str, ...]]:
        """Rows of a query. Creates nothing."""
        if not self._database.exists():
            return []
        with self._database.using() as connection:
            return connection.execute(query, values).fetchall()


_COLUMNS = "origin, name, definition_hash, version, definition, pending_hash, pending"
_PUT = "INSERT INTO pins VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


def _path(path: str) -> str:
    """A path as text for SQLite, also where it is not UTF-8."""
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
