"""What built-in tools replaced, in `undo.db` of the state folder, for some days and within quotas (TLS-4)."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from toolkeep.limits import UNDO_AGENT_BYTES, UNDO_TOTAL_BYTES
from toolkeep.storage.sqlite.database import Database
from toolkeep.stores.replaced_files import Replaced

# secure_delete: what is dropped may have been a secret, and must not stay in free pages.
_PRAGMAS: Final = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON;"
_TABLES: Final = """
CREATE TABLE replaced (
    call TEXT PRIMARY KEY, tool TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL,
    conversation TEXT NOT NULL, path TEXT NOT NULL, at REAL NOT NULL, was_there INTEGER NOT NULL,
    before BLOB, after_sha256 TEXT NOT NULL, undone_by TEXT NOT NULL
) STRICT;
CREATE INDEX replaced_by_time ON replaced (at);
CREATE INDEX replaced_by_session ON replaced (session);
CREATE INDEX replaced_by_conversation ON replaced (conversation);
"""
_COLUMNS: Final = Replaced.__struct_fields__
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM replaced"  # noqa: S608 -- our own words
_OVER: Final = """
DELETE FROM replaced WHERE call IN (SELECT call FROM (
    SELECT call, sum(coalesce(length(before), 0)) OVER (ORDER BY at DESC, rowid DESC) AS bytes
    FROM replaced WHERE agent = ? OR ?
) WHERE bytes > ?)
"""
_DAY_SECONDS: Final = 86_400  # a unit, no bound


class SqliteReplacedFiles:
    """What one keep replaced."""

    def __init__(self, folder: Path, days: float, clock: Callable[[], float] = time.time) -> None:
        """They are kept for so many days; none with 0."""
        self._database = Database(folder / "undo.db", _PRAGMAS, _TABLES)
        self._kept_s = days * _DAY_SECONDS
        self._clock = clock

    def put(self, replaced: Replaced) -> None:
        """Keep what a call is about to replace; drops what is too old, or beyond a quota."""
        if not self._kept_s:
            return
        values = [getattr(replaced, name) for name in _COLUMNS]
        places = ", ".join("?" * len(_COLUMNS))
        with self._database.changing() as connection:
            connection.execute(f"INSERT OR REPLACE INTO replaced VALUES ({places})", values)  # noqa: S608 -- our own words
            connection.execute("DELETE FROM replaced WHERE at < ?", (self._clock() - self._kept_s,))
            connection.execute(_OVER, (replaced.agent, False, UNDO_AGENT_BYTES))
            connection.execute(_OVER, ("", True, UNDO_TOTAL_BYTES))

    def note_after(self, call: str, sha256: str) -> None:
        """Note what a call left."""
        self._change("UPDATE replaced SET after_sha256 = ? WHERE call = ?", sha256, call)

    def note_undone(self, call: str, undone_by: str) -> None:
        """Note that a call was taken back."""
        self._change("UPDATE replaced SET undone_by = ? WHERE call = ?", undone_by, call)

    def _change(self, statement: str, *values: str) -> None:
        if self._kept_s:
            with self._database.changing() as connection:
                connection.execute(statement, values)

    def of_call(self, call: str) -> Replaced | None:
        """What a call replaced; None if it replaced nothing, or that is no longer kept."""
        return next(iter(self._found("call = ?", call)), None)

    def of_session(self, session: str, agent: str = "") -> Sequence[Replaced]:
        """What the calls of a session or conversation replaced, newest first."""
        which = "? IN (session, conversation) AND ? IN (agent, '')"
        return self._found(which, session, agent)

    def _found(self, which: str, *values: str) -> list[Replaced]:
        if not self._database.exists():
            return []
        query = f"{_SELECT} WHERE {which} AND at >= ? ORDER BY at DESC, rowid DESC"
        with self._database.using() as connection:
            rows = connection.execute(query, (*values, self._clock() - self._kept_s)).fetchall()
        return [_read(row) for row in rows]

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def _read(row: Sequence[Any]) -> Replaced:
    fields = dict(zip(_COLUMNS, row, strict=True))
    return Replaced(**{**fields, "was_there": bool(fields["was_there"])})
