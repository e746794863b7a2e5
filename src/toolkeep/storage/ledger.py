"""Claims in SQLite, `ledger.db` in the state folder, shared by the processes of a keep.

A claim names the process that holds it: one without a result whose process is gone has an unknown outcome.
"""

from pathlib import Path

from toolkeep.execution.ledger import Earlier
from toolkeep.storage.database import Database
from toolkeep.storage.processes import is_alive, this_process

# FULL: a claim outlives even a crash of the machine, else a call could run twice.
_SCRIPT = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS claims (
    key TEXT PRIMARY KEY, call_id TEXT NOT NULL, argument_hash TEXT NOT NULL, owner TEXT NOT NULL,
    result BLOB
) STRICT;
"""


class FileLedger:
    """The claims of one keep."""

    def __init__(self, folder: Path) -> None:
        # Without the mark, a ledger that was removed would be made anew, and every call of it run again.
        self._database = Database(folder / "ledger.db", _SCRIPT, mark=folder / "keys" / "ledger.made")

    def claim(self, key: str, call_id: str, argument_hash: str) -> Earlier | None:
        """None if the claim is now ours, durably; else what was there before."""
        with self._database.using() as connection:
            row = (key, call_id, argument_hash, this_process())
            made = connection.execute(
                "INSERT INTO claims VALUES (?, ?, ?, ?, NULL) ON CONFLICT DO NOTHING", row
            ).rowcount
            if made:
                return None
            query = "SELECT argument_hash, owner, result FROM claims WHERE key = ?"
            held = connection.execute(query, (key,)).fetchone()
        if held is None:  # given back at this very moment
            return self.claim(key, call_id, argument_hash)
        digest, owner, result = held
        if result is not None:
            return Earlier(state="done", argument_hash=digest, result=result)
        return Earlier(state="running" if is_alive(owner) else "unknown", argument_hash=digest)

    def finish(self, key: str, result: bytes) -> None:
        """Remember the result of a claimed call."""
        with self._database.using() as connection:
            connection.execute("UPDATE claims SET result = ? WHERE key = ?", (result, key))

    def release(self, key: str) -> None:
        """Take a claim back: nothing was run."""
        with self._database.using() as connection:
            connection.execute("DELETE FROM claims WHERE key = ? AND result IS NULL", (key,))

    def close(self) -> None:
        """Let go of everything."""
        self._database.close()
