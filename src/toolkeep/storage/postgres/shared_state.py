"""Everything that a server shares with others through one PostgreSQL."""

import hashlib
import hmac
import socket
from collections.abc import Callable
from pathlib import Path

from toolkeep.config.settings import DatabaseSettings
from toolkeep.storage.postgres.approvals_table import PostgresApprovals
from toolkeep.storage.postgres.ledger_table import PostgresLedger
from toolkeep.storage.postgres.shared_changes import SharedChanges
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.postgres.shared_register import SharedRegister
from toolkeep.storage.postgres.shared_tokens import SharedTokens
from toolkeep.storage.row_key import RowKey
from toolkeep.storage.sql.database_location import PostgresLocation
from toolkeep.stores.api_tokens import KeptToken


class SharedState:
    """The stores of one server. Nothing connects before the first use."""

    def __init__(self, settings: DatabaseSettings, own_key: Callable[[], bytes], folder: Path) -> None:
        """`own_key` is that of the state folder, for a keep that is alone on its database."""
        self._settings = settings
        self._own_key = own_key
        self._database = open_database(settings)
        self.changes = SharedChanges(self._database, socket.gethostname())
        key = row_key(settings, own_key)
        self.ledger = PostgresLedger(self._database, key, self.changes.start)
        self.approvals = PostgresApprovals(open_database(settings), key, self.changes, folder)

    def secret_key(self) -> bytes:
        """The key under which secrets are hashed: servers that share claims must agree on equal calls."""
        return _derived(self._settings, self._own_key, b"toolkeep secrets")

    def close(self) -> None:
        """Settle what waits, and close."""
        self.approvals.close()
        self.ledger.close()
        self.changes.close()
        self._database.close()


def open_shared_tokens(
    settings: DatabaseSettings, own_key: Callable[[], bytes], folder: Path | None
) -> SharedTokens:
    """The tokens of a keep, over a connection of their own."""
    database = open_database(settings)
    key = row_key(settings, own_key)
    return SharedTokens(SharedRegister("tokens", KeptToken, database, key, folder), database)


def open_database(settings: DatabaseSettings) -> SharedDatabase:
    """A connection to the shared database; each store has its own."""
    return SharedDatabase(PostgresLocation(settings.url), is_single=settings.is_single)


def row_key(settings: DatabaseSettings, own_key: Callable[[], bytes]) -> RowKey:
    """The key of rows, the same on all servers with the same `database.key`."""
    return RowKey(_derived(settings, own_key, b"toolkeep rows"))


def _derived(settings: DatabaseSettings, own_key: Callable[[], bytes], purpose: bytes) -> bytes:
    return hmac.digest(settings.key.encode() or own_key(), purpose, hashlib.sha256)
