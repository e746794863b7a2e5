"""Stores of servers that share a PostgreSQL."""

from toolkeep.storage.postgres.sessions_table import PostgresSessionStates
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.row_key import RowKey
from toolkeep.storage.sql.database_location import PostgresLocation


def shared_states(url: str, key: bytes = b"key") -> PostgresSessionStates:
    """The sessions and measures of one server."""
    reading, writing = (SharedDatabase(PostgresLocation(url), is_single=True) for _ in range(2))
    return PostgresSessionStates(reading, writing, RowKey(key))
