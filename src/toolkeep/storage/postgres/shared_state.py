"""Everything that a server shares with others through one PostgreSQL, and its presence there."""

import hashlib
import hmac
import socket
from collections.abc import Callable

from toolkeep.config.settings import DatabaseSettings
from toolkeep.storage.postgres.ledger_table import PostgresLedger
from toolkeep.storage.postgres.server_presence import ServerPresence
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.sql.database_location import PostgresLocation


class SharedState:
    """The stores of one server. Nothing connects before the first use."""

    def __init__(self, settings: DatabaseSettings, own_key: Callable[[], bytes]) -> None:
        """`own_key` is that of the state folder, for a keep that is alone on its database."""
        self._settings = settings
        self._own_key = own_key
        place = PostgresLocation(settings.url)
        self._database = SharedDatabase(place, self.key_for("rows"), is_single=settings.is_single)
        self._presence = ServerPresence(self._database, socket.gethostname())
        self.ledger = PostgresLedger(self._database, self._presence.start)

    def key_for(self, purpose: str) -> bytes:
        """A key for one purpose, the same on all servers with the same `database.key`."""
        key = self._settings.key.encode() or self._own_key()
        return hmac.digest(key, f"toolkeep {purpose}".encode(), hashlib.sha256)

    def close(self) -> None:
        """Settle what waits, and close."""
        self.ledger.close()
        self._presence.close()
        self._database.close()
