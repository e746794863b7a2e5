"""Approval stores of every kind, whose clock a test sets."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.approval.examples import Clock
from toolkeep.storage.postgres.approvals_table import PostgresApprovals
from toolkeep.storage.postgres.shared_changes import SharedChanges
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.row_key import RowKey
from toolkeep.storage.sql.database_location import PostgresLocation


@contextlib.contextmanager
def server(
    url: str, folder: Path, clock: Clock, key: bytes = b"key", *, ahead_s: float = 0.0
) -> Iterator[PostgresApprovals]:
    """The approvals of one of the servers that share a database, whose own clock may be ahead."""
    with contextlib.ExitStack() as stack:
        database, own = (SharedDatabase(PostgresLocation(url), is_single=True) for _ in range(2))
        changes = SharedChanges(database, "server")
        stack.callback(database.close)
        stack.callback(changes.close)
        store = PostgresApprovals(
            own,
            RowKey(key),
            changes,
            folder,
            clock=lambda: clock() + ahead_s,
            database_clock=lambda _: clock(),
        )
        stack.callback(store.close)
        yield store
