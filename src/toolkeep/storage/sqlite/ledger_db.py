"""The idempotency ledger: `ledger.db` in the state folder, shared by the processes of a keep.

A claim names its process. A claim without a result whose process has died has an unknown outcome. The changes
of calls that run at once are committed together.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from toolkeep.execution.idempotency import IdempotentResult
from toolkeep.storage.group_commit import GroupCommit
from toolkeep.storage.sqlite.database import Database
from toolkeep.storage.sqlite.process_identity import is_alive, this_process

if TYPE_CHECKING:
    import sqlite3

# synchronous = FULL: a claim survives a crash of the machine; otherwise a call could run twice.
_PRAGMAS = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
_TABLES = """
CREATE TABLE claims (
    key TEXT PRIMARY KEY, call_id TEXT NOT NULL, argument_hash TEXT NOT NULL, owner TEXT NOT NULL,
    result BLOB
) STRICT;
"""
_CLAIM = "INSERT INTO claims VALUES (?, ?, ?, ?, NULL) ON CONFLICT DO NOTHING"
_HELD = "SELECT argument_hash, owner, result FROM claims WHERE key = ?"
_FINISH = "UPDATE claims SET result = ? WHERE key = ? AND call_id = ?"
_RELEASE = "DELETE FROM claims WHERE key = ? AND call_id = ? AND result IS NULL"

Statement: TypeAlias = tuple[str, tuple[str | bytes, ...]]
"""One of the above, and its values."""


class SqliteLedger:
    """The claims of one keep."""

    def __init__(self, folder: Path) -> None:
        # Without the mark, a deleted ledger would be created again, and every call in it could run again.
        self._database = Database(
            folder / "ledger.db", _PRAGMAS, _TABLES, mark=folder / "keys" / "ledger.made"
        )
        self._changes: GroupCommit[Statement, IdempotentResult | None] = GroupCommit(self._change)

    async def claim(self, key: str, call_id: str, argument_hash: str) -> IdempotentResult | None:
        """None if this call claimed the key, durably; otherwise the earlier claim."""
        return await self._changes.put((_CLAIM, (key, call_id, argument_hash, this_process())))

    async def finish(self, key: str, call_id: str, argument_hash: str, result: bytes) -> None:  # noqa: ARG002 -- of the protocol
        """Store the result of a claimed call."""
        await self._changes.put((_FINISH, (result, key, call_id)))

    async def release(self, key: str, call_id: str) -> None:
        """Remove the claim of a call: nothing was run. A result, or a claim of another call, stays."""
        await self._changes.put((_RELEASE, (key, call_id)))

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _change(self, statements: Sequence[Statement]) -> list[IdempotentResult | None]:
        with self._database.changing() as connection:
            return [_carried_out(connection, *statement) for statement in statements]


def _carried_out(
    connection: "sqlite3.Connection", statement: str, values: tuple[str | bytes, ...]
) -> IdempotentResult | None:
    """Carry out a change; the earlier claim where another call has the key."""
    changed = connection.execute(statement, values).rowcount
    if statement is not _CLAIM or changed:
        return None
    digest, owner, result = connection.execute(_HELD, values[:1]).fetchone()
    if result is not None:
        return IdempotentResult(state="done", argument_hash=digest, result=result)
    return IdempotentResult(state="running" if is_alive(owner) else "unknown", argument_hash=digest)
