"""Everything that a server shares with others through one PostgreSQL."""

import hashlib
import hmac
import socket
from collections.abc import Callable

from toolkeep.config.settings import DatabaseSettings
from toolkeep.storage.postgres.ledger_table import PostgresLedger
from toolkeep.storage.postgres.peers import Peers
from toolkeep.storage.postgres.shared_changes import SharedChanges
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.row_key import RowKey
from toolkeep.storage.sql.database_location import PostgresLocation


class SharedState:
    """The stores of one server. Nothing connects before the first use."""

    def __init__(self, settings: DatabaseSettings, own_key: Callable[[], bytes]) -> None:
        """`own_key` is that of the state folder, for a keep that is alone on its database."""
        self._settings = settings
        self._own_key = own_key
        self._database = SharedDatabase(PostgresLocation(settings.url), is_single=settings.is_single)
        self.changes = SharedChanges(self._database, socket.gethostname())
        self.ledger = PostgresLedger(self._database, row_key(settings, own_key), self.changes.start)
        self._peers: Peers | None = None

    def secret_key(self) -> bytes:
        """The key under which secrets are hashed: servers that share claims must agree on equal calls."""
        return _derived(self._settings, self._own_key, b"toolkeep secrets")

    def peers(self) -> Peers:
        """What this server and the others tell each other about their clients."""
        if self._peers is None:
            self._peers = Peers(
                SharedDatabase(self._database.place, is_single=self._settings.is_single),
                self.changes,
                row_key(self._settings, self._own_key),
                server=lambda: self._database.server,
                secret=_derived(self._settings, self._own_key, b"toolkeep request states"),
            )
        return self._peers

    def close(self) -> None:
        """Settle what waits, and close."""
        self.ledger.close()
        if self._peers is not None:
            self._peers.disconnect()
        self.changes.close()
        self._database.close()


def row_key(settings: DatabaseSettings, own_key: Callable[[], bytes]) -> RowKey:
    """The key of rows, the same on all servers with the same `database.key`."""
    return RowKey(_derived(settings, own_key, b"toolkeep rows"))


def _derived(settings: DatabaseSettings, own_key: Callable[[], bytes], purpose: bytes) -> bytes:
    return hmac.digest(settings.key.encode() or own_key(), purpose, hashlib.sha256)
