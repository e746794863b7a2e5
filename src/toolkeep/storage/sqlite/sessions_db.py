"""The states of sessions: `sessions.db` in the state folder, shared by the processes of a keep (FLO-1)."""

from pathlib import Path

import msgspec

from toolkeep.flow.session_state import FALLEN, Snapshot
from toolkeep.storage.sqlite.database import Database

# synchronous = FULL: after a crash of the machine a session must not look cleaner than it was.
_PRAGMAS = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
_TABLES = """
CREATE TABLE sessions (key TEXT PRIMARY KEY, state BLOB NOT NULL, put_at REAL NOT NULL) STRICT;
"""


class SqliteSessionStates:
    """The states of one keep's sessions."""

    def __init__(self, folder: Path) -> None:
        # Without the mark, a deleted file would be created again, and every session would be clean.
        self._database = Database(
            folder / "sessions.db", _PRAGMAS, _TABLES, mark=folder / "keys" / "sessions.made"
        )

    @property
    def generation(self) -> int:
        """Another number after another process has changed the file."""
        with self._database.using() as connection:
            row = connection.execute("PRAGMA data_version").fetchone()
            return int(row[0])

    def get(self, key: str, since: float = 0.0) -> Snapshot | None:
        """The state of a key; one that cannot be read counts as having seen everything."""
        with self._database.using() as connection:
            row = connection.execute("SELECT state, put_at FROM sessions WHERE key = ?", (key,)).fetchone()
        return None if row is None or row[1] < since else _read(row[0])

    def put(self, key: str, state: Snapshot, now: float) -> None:
        """Join a state with what is there."""
        with self._database.changing() as connection:
            row = connection.execute("SELECT state FROM sessions WHERE key = ?", (key,)).fetchone()
            joined = state if row is None else state.joined(_read(row[0]))
            connection.execute(
                "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?)", (key, msgspec.json.encode(joined), now)
            )

    def drop(self, key: str) -> None:
        """Forget a state."""
        with self._database.changing() as connection:
            connection.execute("DELETE FROM sessions WHERE key = ?", (key,))

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def _read(state: bytes) -> Snapshot:
    try:
        return msgspec.json.decode(state, type=Snapshot)
    except msgspec.DecodeError:
        return FALLEN
