"""The idempotency ledger: `ledger.db` in the state folder, shared by the processes of a keep.

A claim names its process. A claim without a result whose process has died has an unknown outcome.
"""

from pathlib import Path

from toolkeep.execution.idempotency import IdempotentResult
from toolkeep.storage.sqlite.database import Database
from toolkeep.storage.sqlite.process_identity import is_alive, this_process

# synchronous = FULL: a claim survives a crash of the machine; otherwise a call could run twice.
_PRAGMAS = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
_TABLES = """
CREATE TABLE claims (
    key TEXT PRIMARY KEY, call_id TEXT NOT NULL, argument_hash TEXT NOT NULL, owner TEXT NOT NULL,
    result BLOB
) STRICT;
"""


class SqliteLedger:
    """The claims of one keep."""

    def __init__(self, folder: Path) -> None:
        # Without the mark, a deleted ledger would be created again, and every call in it could run again.
        self._database = Database(
            folder / "ledger.db", _PRAGMAS, _TABLES, mark=folder / "keys" / "ledger.made"
        )

    def claim(self, key: str, call_id: str, argument_hash: str) -> IdempotentResult | None:
        """None if this call claimed the key, durably; otherwise the earlier claim."""
        with self._database.using() as connection:
            row = (key, call_id, argument_hash, this_process())
            made = connection.execute(
                "INSERT INTO claims VALUES (?, ?, ?, ?, NULL) ON CONFLICT DO NOTHING", row
            ).rowcount
            if made:
                return None
            query = "SELECT argument_hash, owner, result FROM claims WHERE key = ?"
            held = connection.execute(query, (key,)).fetchone()
        if held is None:  # released in between
            return self.claim(key, call_id, argument_hash)
        digest, owner, result = held
        if result is not None:
            return IdempotentResult(state="done", argument_hash=digest, result=result)
        return IdempotentResult(state="running" if is_alive(owner) else "unknown", argument_hash=digest)

    def finish(self, key: str, result: bytes) -> None:
        """Store the result of a claimed call."""
        with self._database.using() as connection:
            connection.execute("UPDATE claims SET result = ? WHERE key = ?", (result, key))

    def release(self, key: str) -> None:
        """Release a claim: nothing was run."""
        with self._database.using() as connection:
            connection.execute("DELETE FROM claims WHERE key = ? AND result IS NULL", (key,))

    def close(self) -> None:
        """Close the file."""
        self._database.close()
