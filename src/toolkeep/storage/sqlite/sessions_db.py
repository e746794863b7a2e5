"""States of sessions, and what calls added to measures: `sessions.db` and `measures.db` in the state folder.

Both are shared by the processes of a keep (FLO-1, FLO-4). They are two files, since a change of the first
makes every process read its sessions again.
"""

import contextlib
import mmap
import os
import secrets
import time
from collections.abc import Collection, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from toolkeep.errors import StateUnusable
from toolkeep.flow.measures import MOST
from toolkeep.flow.session_state import FALLEN, Snapshot
from toolkeep.flow.session_store import FOLDED_S, Addition, Window, of_session
from toolkeep.host.files import is_there
from toolkeep.storage.atomic_files import write_once
from toolkeep.storage.sqlite.database import Database

if TYPE_CHECKING:
    import sqlite3

# synchronous = FULL: after a crash of the machine a session must not look cleaner than it was.
_PRAGMAS = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
_TABLES = """
CREATE TABLE sessions (key TEXT PRIMARY KEY, state BLOB NOT NULL, put_at REAL NOT NULL) STRICT;
"""

# `value` is in ten-thousandths. `until` is when a row stops to count, and NULL for rows of a session.
_MEASURED = """
CREATE TABLE measured (
    subject TEXT NOT NULL, source TEXT NOT NULL, call TEXT NOT NULL, at REAL NOT NULL, value INTEGER NOT NULL,
    until REAL, PRIMARY KEY (subject, source, call)
) STRICT, WITHOUT ROWID;
CREATE INDEX times ON measured (subject, source, at, value);
CREATE INDEX ends ON measured (until, at);
"""
_PUT = """
INSERT INTO measured VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET at = excluded.at, until = excluded.until, value = excluded.value
"""
# In two halves: SQLite refuses a sum beyond 64 bits, and a sum of large amounts must only be large.
_SUM = """
SELECT coalesce(sum(value >> 32), 0), coalesce(sum(value & 4294967295), 0) FROM measured
WHERE subject = ? AND source = ? AND at > ? AND call <> ?
"""
_REMOVE = "DELETE FROM measured WHERE subject = ? AND source = ? AND call = ?"
_OLD = """
SELECT subject, source, call, at, value FROM measured
WHERE until IS NULL AND at < ? AND call <> '' ORDER BY at
"""
_PRUNED_S = 60.0
"""How often rows are pruned."""
_ALWAYS = float("-inf")
_CHECKED_S = 1.0
"""How often a file is looked for that somebody may have removed while it is open."""
_MARK_BYTES = 16
"""Enough that no two changes ever have the same."""


class SqliteSessionStates:
    """The states of one keep's sessions, and what its calls added."""

    is_remote: Final = False

    def __init__(self, folder: Path) -> None:
        # Without the mark, a deleted file would be created again, and every session would be clean.
        self._database = Database(
            folder / "sessions.db", _PRAGMAS, _TABLES, mark=folder / "keys" / "sessions.made"
        )
        self._measured = Database(
            folder / "measures.db", _PRAGMAS, _MEASURED, mark=folder / "keys" / "measures.made"
        )
        self._pruned_at = _ALWAYS
        self._changes = _Changes(folder / "sessions.changed")
        self._checked_at = _ALWAYS
        self._mark = b""
        self._generation: Hashable = None

    @property
    def generation(self) -> Hashable:
        """Another value after another process has changed the file.

        To ask SQLite takes 45 µs in the middle of a call, to read memory that all processes share 2.
        """
        now, mark = time.monotonic(), self._changes.mark
        if mark != self._mark or now - self._checked_at > _CHECKED_S:
            with self._database.using() as connection:
                self._changes.check()
                mark = self._changes.mark  # before SQLite is asked: the next call notices a later change
                (version,) = connection.execute("PRAGMA data_version").fetchone()
            self._generation = (self._database.openings, version)
            self._mark, self._checked_at = mark, now
        return self._generation

    def get(self, key: str, since: float = 0.0) -> Snapshot | None:
        """The state of a key; one that cannot be read counts as having seen everything."""
        with self._database.using() as connection:
            row = connection.execute("SELECT state, put_at FROM sessions WHERE key = ?", (key,)).fetchone()
        return None if row is None or row[1] < since else _read(row[0])

    async def get_soon(self, key: str, since: float = 0.0) -> Snapshot | None:
        """As `get`."""
        return self.get(key, since)

    def put(self, key: str, state: Snapshot, now: float) -> None:
        """Join a state with what is there."""
        with self._database.changing() as connection:
            row = connection.execute("SELECT state FROM sessions WHERE key = ?", (key,)).fetchone()
            joined = state if row is None else state.joined(_read(row[0]))
            connection.execute(
                "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?)", (key, msgspec.json.encode(joined), now)
            )
        self._changes.tell()

    def drop(self, key: str) -> None:
        """Forget a state."""
        with self._database.changing() as connection:
            connection.execute("DELETE FROM sessions WHERE key = ?", (key,))
        self._changes.tell()
        if self._measured.exists():
            with self._measured.changing() as connection:
                connection.execute("DELETE FROM measured WHERE subject = ?", (of_session(key),))

    def end(self, key: str, now: float) -> None:
        """End a session for all processes: its next call begins anew. Only a person may ask for it.

        A row says so, since to remove it would tell no process that holds the state in memory.
        """
        self.drop(key)
        self.put(key, Snapshot(begun=now), now)

    def stored(self) -> list[tuple[str, Snapshot, float]]:
        """Each key with its state, and when that was stored, newest first."""
        if not self._database.exists():
            return []
        with self._database.using() as connection:
            rows = connection.execute("SELECT key, state, put_at FROM sessions ORDER BY put_at DESC, key")
            return [(key, _read(state), at) for key, state, at in rows]

    def forget(self, key: str, since: float) -> None:
        """Forget a session at rest."""
        with self._database.changing() as connection:
            query = "DELETE FROM sessions WHERE key = ? AND put_at < ?"
            is_changed = connection.execute(query, (key, since)).rowcount > 0
        if is_changed:
            self._changes.tell()
        if not self._measured.exists():
            return
        subject = of_session(key)
        with self._measured.changing() as connection:
            newest = connection.execute(
                "SELECT max(at) FROM measured WHERE subject = ?", (subject,)
            ).fetchone()
            if newest[0] is not None and newest[0] < since:
                connection.execute("DELETE FROM measured WHERE subject = ?", (subject,))

    def reserve(
        self, call: str, additions: Collection[Addition], windows: Sequence[Window], now: float
    ) -> list[int]:
        """Sum and add in one transaction."""
        if not additions:
            with self._measured.using() as connection:
                return [_sum(connection, call, window) for window in windows]
        with self._measured.changing() as connection:
            self._prune(connection, now)
            sums = [_sum(connection, call, window) for window in windows]
            connection.executemany(_PUT, [_row(call, one, now, 0) for one in additions])
            return sums

    def add(self, call: str, additions: Collection[Addition], now: float) -> None:
        """Add more of a call."""
        with self._measured.changing() as connection:
            for one in additions:
                held = _value(connection, one.subject, one.source, call)
                connection.execute(_PUT, _row(call, one, now, held))

    def release(self, call: str, additions: Collection[Addition]) -> None:
        """Remove what a call added."""
        with self._measured.changing() as connection:
            connection.executemany(_REMOVE, [(one.subject, one.source, call) for one in additions])

    def _prune(self, connection: "sqlite3.Connection", now: float) -> None:
        """Remove rows that no longer count, and fold the old ones of each session into one."""
        if abs(now - self._pruned_at) < _PRUNED_S:
            return
        self._pruned_at = now
        connection.execute("DELETE FROM measured WHERE until < ?", (now,))
        for subject, source, call, at, value in connection.execute(_OLD, (now - FOLDED_S,)).fetchall():
            total = min(_value(connection, subject, source, "") + value, MOST)
            connection.execute(_PUT, (subject, source, "", at, total, None))
            connection.execute(_REMOVE, (subject, source, call))

    def close(self) -> None:
        """Close the files."""
        self._database.close()
        self._changes.close()
        self._measured.close()


class _Changes:
    """A few random bytes in a file that every process maps: other ones after each change of the states.

    They are written after a change is committed, and before the result that caused it goes out. Who writes
    last does not matter, since a reader asks SQLite what changed.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._mapped: mmap.mmap | None = None
        self._opened: os.stat_result | None = None

    @property
    def mark(self) -> bytes:
        """The bytes; none before the file was opened."""
        return b"" if self._mapped is None else self._mapped[:]

    def tell(self) -> None:
        """Let every process know of a change."""
        self.check()
        if self._mapped is not None:
            self._mapped[:] = secrets.token_bytes(_MARK_BYTES)

    def check(self) -> None:
        """Open the file, also if another one has its name by now."""
        with contextlib.suppress(FileNotFoundError):
            if self._opened is not None and os.path.samestat(self._opened, self._file.stat()):
                return
        if not is_there(self._file):
            write_once(self._file, bytes(_MARK_BYTES))
        with self._file.open("r+b") as file:
            self._opened = os.fstat(file.fileno())
            if self._opened.st_size != _MARK_BYTES:  # to read beyond its end would end the process
                raise StateUnusable(str(self._file), "is damaged", hint="remove it; it holds no state")
            self._mapped = mmap.mmap(file.fileno(), _MARK_BYTES)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._mapped = self._opened = None


def _sum(connection: "sqlite3.Connection", call: str, window: Window) -> int:
    since = _ALWAYS if window.since is None else window.since
    high, low = connection.execute(_SUM, (window.subject, window.source, since, call)).fetchone()
    return (int(high) << 32) + int(low)


def _value(connection: "sqlite3.Connection", subject: str, source: str, call: str) -> int:
    query = "SELECT value FROM measured WHERE subject = ? AND source = ? AND call = ?"
    held = connection.execute(query, (subject, source, call)).fetchone()
    return int(held[0]) if held else 0


def _row(call: str, one: Addition, now: float, before: int) -> tuple[str, str, str, float, int, float | None]:
    until = None if one.kept_s is None else now + one.kept_s
    return one.subject, one.source, call, now, min(before + one.value, MOST), until


def _read(state: bytes) -> Snapshot:
    try:
        return msgspec.json.decode(state, type=Snapshot)
    except msgspec.DecodeError:
        return FALLEN
