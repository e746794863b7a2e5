"""Tells the other servers on one PostgreSQL, once a second, that this one lives. Times are the database's."""

import logging
import threading
from typing import Any, Final

from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.sql.database_location import SCHEMA

log = logging.getLogger("toolkeep.store")

_EVERY_SECONDS: Final = 1.0
_FORGOTTEN: Final = "1 day"
"""Servers that were not seen for so long are removed; their claims are unknown with or without them."""
_SEEN = f"""
INSERT INTO {SCHEMA}.shared_servers VALUES (%s, %s, now()) ON CONFLICT (id) DO UPDATE SET seen_at = now()
"""
_FORGET = f"DELETE FROM {SCHEMA}.shared_servers WHERE seen_at < now() - interval '{_FORGOTTEN}'"


class ServerPresence:
    """Writes that a server lives, until it is closed."""

    def __init__(self, database: SharedDatabase, name: str) -> None:
        self._database = database
        self._name = name
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="toolkeep-presence", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        connection: Any = None
        is_told = False
        while not self._is_over.is_set():
            try:
                if connection is None or connection.closed:
                    connection = self._connect()
                connection.execute(_SEEN, (self._database.server, self._name))
                is_told = False
            except self._database.place.failures() as error:
                if not is_told:
                    log.warning("the shared database is away", extra={"error_type": type(error).__name__})
                is_told = True
            self._is_over.wait(_EVERY_SECONDS)
        if connection is not None:
            connection.close()

    def _connect(self) -> Any:
        connection = self._database.place.connect(answer_s=_EVERY_SECONDS)
        connection.execute("SET synchronous_commit = off")  # the next one comes soon
        connection.execute(_FORGET)
        return connection
