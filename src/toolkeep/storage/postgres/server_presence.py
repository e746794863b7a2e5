"""Tells the other servers on one PostgreSQL, once a second, that this one lives. Times are the database's."""

import logging
import threading
from typing import Any, Final

from toolkeep.errors import ToolkeepError
from toolkeep.host.after_fork import register_after_fork
from toolkeep.storage.postgres.shared_database import SharedDatabase

log = logging.getLogger("toolkeep.store")

_EVERY_SECONDS: Final = 1.0
"""A tenth of the time after which others take a server for dead."""
_SEEN = """
INSERT INTO shared_servers VALUES (%s, %s, now()) ON CONFLICT (id) DO UPDATE SET seen_at = now()
"""
# Their claims are unknown with or without them.
_FORGET = "DELETE FROM shared_servers WHERE seen_at < now() - interval '1 day'"


class ServerPresence:
    """Writes that a server lives, until it is closed."""

    def __init__(self, database: SharedDatabase, name: str) -> None:
        self._database = database
        self._name = name
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        register_after_fork(self)

    def start(self) -> None:
        """Start, unless it has."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="toolkeep-presence", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()

    def leave_to_parent(self) -> None:
        """After fork(), in the child: the thread is the parent's."""
        self._is_over, self._thread = threading.Event(), None

    def _run(self) -> None:
        failures: tuple[type[BaseException], ...] = (ToolkeepError, *self._database.place.failures())
        connection: Any = None
        is_told = False
        while not self._is_over.is_set():
            try:
                if connection is None or connection.closed:
                    connection = self._connect()
                connection.execute(_SEEN, (self._database.server, self._name))
                is_told = False
            except failures as error:
                if not is_told:
                    log.warning("the shared database is away", extra={"error_type": type(error).__name__})
                is_told = True
            self._is_over.wait(_EVERY_SECONDS)
        if connection is not None:
            connection.close()

    def _connect(self) -> Any:
        connection = self._database.connect(answer_s=_EVERY_SECONDS)
        connection.execute("SET synchronous_commit = off")  # the next one comes soon
        connection.execute(_FORGET)
        return connection
