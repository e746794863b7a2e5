"""Follows what other servers change in the shared PostgreSQL, and tells them that this one lives.

One thread and one connection for each server. A notice wakes within milliseconds of the commit that announced
it. It can be lost with its connection, so it decides nothing: after a reconnect, and once a second, every
watcher is told that anything may have changed. Times are the database's.
"""

import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from toolkeep.host.after_fork import register_after_fork
from toolkeep.limits import UNSEEN_SERVER_SECONDS
from toolkeep.storage.postgres.shared_database import SharedDatabase

log = logging.getLogger("toolkeep.store")

Heard = Callable[[str], object]
"""Called with the key of what changed; empty if anything may have."""

_CHANNEL: Final = "toolkeep_shared"
_TICK_SECONDS: Final = 0.25
"""How often the database is asked whether it is there."""
_EVERY_SECONDS: Final = 1.0
"""How often a server is marked as alive, a tenth of the time after which it is taken for dead, and watchers
are told to look."""
CURRENT_SECONDS: Final = 1.0
"""Without an answer for longer, what others withdrew may not be known here."""
IS_ALIVE: Final = f"(seen_at > now() - interval '{UNSEEN_SERVER_SECONDS} seconds')"
"""Whether the server of a row of `shared_servers` lives."""
_SEEN = """
INSERT INTO shared_servers VALUES (%s, %s, now()) ON CONFLICT (id) DO UPDATE SET seen_at = now()
"""
_LIVE = "SELECT count(*) FROM shared_servers WHERE seen_at > now() - %s * interval '1 second'"
_LIVE_SECONDS: Final = 5
"""A server that was not seen for longer has no share of what servers divide."""
# Their claims are unknown with or without them.
_FORGET = "DELETE FROM shared_servers WHERE seen_at < now() - interval '1 day'"


def announce(connection: Any, topic: str, key: str = "") -> None:
    """Tell the watchers of a topic, on all servers, if and when this transaction is committed."""
    connection.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, f"{topic} {key}"))


class SharedChanges:
    """The thread of one server. It starts with the first watcher or claim, and ends when it is closed."""

    def __init__(self, database: SharedDatabase, name: str) -> None:
        self._database = database
        self._name = name
        self._watchers: dict[object, tuple[str, Heard]] = {}
        self._answered_at = float("-inf")
        self.servers = 1
        """How many servers live, as of a second ago."""
        self._lock = threading.Lock()
        self._is_over = False
        self._wake: tuple[int, ...] = ()
        self._thread: threading.Thread | None = None
        register_after_fork(self)

    @property
    def is_current(self) -> bool:
        """Whether the database answered within the last second."""
        return time.monotonic() - self._answered_at < CURRENT_SECONDS

    def start(self) -> None:
        """Start, unless it has."""
        with self._lock:
            if self._thread is None and not self._is_over:
                self._wake = os.pipe()
                self._thread = threading.Thread(target=self._run, name="toolkeep-shared", daemon=True)
                self._thread.start()

    def appear(self, connection: Any) -> str:
        """Mark this server as alive within a transaction, and from then on; returns its id."""
        self.start()
        server = self._database.server
        connection.execute(_SEEN, (server, self._name))
        return server

    def watch(self, topic: str, heard: Heard) -> Callable[[], None]:
        """Call `heard` in the thread after each change of a topic; returns what ends the watch.

        It must return soon, and not raise.
        """
        mark = object()
        self._watchers[mark] = (topic, heard)
        self.start()

        def end() -> None:
            self._watchers.pop(mark, None)

        return end

    def close(self) -> None:
        """Stop."""
        with self._lock:
            self._is_over = True
            thread, self._thread = self._thread, None
        if thread is not None:
            os.write(self._wake[1], b".")
            thread.join()
            self._let_go()

    def leave_to_parent(self) -> None:
        """After fork(), in the child: the thread is the parent's, and so is who watched."""
        self._lock, self._thread, self._watchers = threading.Lock(), None, {}
        self._let_go()

    def _let_go(self) -> None:
        wake, self._wake = self._wake, ()
        for end in wake:
            os.close(end)

    def _run(self) -> None:
        is_told = False
        while not self._is_over:
            try:
                with contextlib.closing(self._connect()) as connection:
                    if is_told:
                        log.info("the shared database is back")
                    is_told = False
                    self._follow(connection)
            except Exception as error:  # noqa: BLE001 -- without this thread, the server makes no calls
                if not is_told:
                    log.warning("the shared database is away", extra={"error_type": type(error).__name__})
                is_told = True
                self._wait(_TICK_SECONDS)

    def _connect(self) -> Any:
        connection = self._database.connect(answer_s=CURRENT_SECONDS)
        try:
            connection.execute("SET synchronous_commit = off")  # the next mark comes soon
            connection.execute(_FORGET)
            connection.execute(f"LISTEN {_CHANNEL}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _follow(self, connection: Any) -> None:
        """Over one connection, until it breaks or this is closed."""
        notices: list[Any] = []  # read together with the answer to any statement
        connection.add_notify_handler(notices.append)
        looked_at = float("-inf")
        while not self._is_over:
            asked_at = time.monotonic()
            if is_due := asked_at - looked_at >= _EVERY_SECONDS:
                connection.execute(_SEEN, (self._database.server, self._name))
                (live,) = connection.execute(_LIVE, (_LIVE_SECONDS,)).fetchone()
                self.servers, looked_at = max(1, live), asked_at
            else:
                connection.execute("SELECT 1")
            self._answered_at = asked_at
            # Each once, of whatever form: any user of the database can send them, and any number.
            said = dict.fromkeys(notice.payload for notice in notices)
            notices.clear()
            for payload in said:
                topic, _, key = payload.partition(" ")
                if topic:
                    self._tell(topic, key)
            if is_due:
                self._tell("", "")
            self._wait(_TICK_SECONDS, connection)

    def _tell(self, topic: str, key: str) -> None:
        for of, heard in list(self._watchers.values()):
            if topic in ("", of):
                try:
                    heard(key)
                except Exception:
                    log.exception("a change of another server could not be followed")

    def _wait(self, seconds: float, connection: Any = None) -> None:
        """Until something is said, or this is closed; `poll` takes descriptors of any number."""
        said = select.poll()
        said.register(self._wake[0], select.POLLIN)
        if connection is not None:
            said.register(connection.fileno(), select.POLLIN)
        said.poll(seconds * 1000)
