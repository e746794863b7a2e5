"""Change feed of the store (STO-3) and of the state: a thread that follows the changes of other keeps.

PostgreSQL notifies (LISTEN); an SQLite file is polled by its `data_version`. Changes are numbered, so a feed
that was disconnected catches up, and a lost notification loses nothing. A store that does not answer is
reported once and retried; the tools read before stay in service.
"""

import contextlib
import logging
import os
import select
import threading
from collections.abc import Callable
from typing import Any, Final

from toolkeep.errors import ToolkeepError
from toolkeep.events import Event, StoreLost
from toolkeep.host.after_fork import register_after_fork
from toolkeep.limits import FOLLOW_FILE_SECONDS, FOLLOW_PAUSE_SECONDS, FOLLOW_SECONDS, RECONNECT_SECONDS
from toolkeep.storage.sql.database_location import CHANNEL, DatabaseLocation

log = logging.getLogger("toolkeep.store")

_FIRST_PAUSE_SECONDS: Final = 0.1
"""Initial reconnect delay, doubled up to `RECONNECT_SECONDS`: after a brief loss, changes are seen soon."""


class ChangeFeed:
    """Follows the changes of a store until it is closed."""

    def __init__(
        self, place: DatabaseLocation, follow: Callable[[], object], tell: Callable[[Event], None]
    ) -> None:
        self._place = place
        self._follow = follow
        self._tell = tell
        self._wake: tuple[int, ...] = os.pipe()
        for descriptor in self._wake:
            os.set_blocking(descriptor, False)
        self._is_over = threading.Event()
        self._lost = ""
        self._thread = threading.Thread(target=self._run, name="toolkeep-follow", daemon=True)
        self._thread.start()
        register_after_fork(self)

    def leave_to_parent(self) -> None:
        """After fork(), in the child: close the pipe, which would wake the parent's thread."""
        self._let_go()

    @property
    def lost(self) -> str:
        """Why the feed is disconnected; empty while it is connected."""
        return self._lost

    def close(self) -> None:
        """Stop, and close."""
        self._is_over.set()
        for end in self._wake[1:]:
            with contextlib.suppress(OSError):
                os.write(end, b".")
        self._thread.join()
        self._let_go()

    def _let_go(self) -> None:
        wake, self._wake = self._wake, ()
        for end in wake:
            os.close(end)

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_SECONDS
        while not self._is_over.is_set():
            try:
                self._watch()
                pause_s = _FIRST_PAUSE_SECONDS
            except Exception as error:  # noqa: BLE001 -- whatever it is, the tools go on and it is tried again
                self._note(self._place.refuse(error))
                self._is_over.wait(pause_s)
                pause_s = min(pause_s * 2, RECONNECT_SECONDS)

    def _watch(self) -> None:
        """Follow over one connection, until it breaks or the feed is closed."""
        if not self._place.exists():
            self._wait(None, FOLLOW_FILE_SECONDS)
            return
        with contextlib.closing(self._place.connect()) as connection:
            seen = self._begin(connection)
            self._follow()
            self._lost = ""
            while not self._is_over.is_set():
                seen = self._next(connection, seen)

    def _begin(self, connection: Any) -> Any:
        if self._place.is_embedded:
            return _data_version(connection)
        connection.execute(f"LISTEN {CHANNEL}")
        return None

    def _next(self, connection: Any, seen: Any) -> Any:
        """Wait for the next change and follow it; a periodic query detects a dead connection."""
        if self._place.is_embedded:
            self._wait(None, FOLLOW_FILE_SECONDS)
            found = _data_version(connection)
            if found != seen:
                self._follow()
            return found
        self._wait(connection, FOLLOW_SECONDS)
        for _ in connection.notifies(timeout=0):
            pass
        connection.execute("SELECT 1")
        if not self._is_over.is_set():
            self._follow()
        self._is_over.wait(FOLLOW_PAUSE_SECONDS)
        return None

    def _wait(self, connection: Any, most_s: float) -> None:
        said = select.poll()  # unlike `select`, for descriptors of any number
        said.register(self._wake[0], select.POLLIN)
        if connection is not None:
            said.register(connection.fileno(), select.POLLIN)
        said.poll(most_s * 1000)

    def _note(self, error: ToolkeepError) -> None:
        if not self._lost:
            self._tell(StoreLost(store=self._place.shown, error_message=error.message))
        self._lost = error.message


class StateChangeFeed:
    """Polls the state of the keep for changes of other processes, until it is closed.

    A poll is one `stat`, twice a second; calls pay nothing. The poll after a change reads once more: a second
    write within the same tick of the clock has the same stamp.
    """

    def __init__(self, stamp: Callable[[], object], follow: Callable[[], object]) -> None:
        self._stamp = stamp
        self._follow = follow
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="toolkeep-state", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        seen: object = _NEVER
        is_lost = is_fresh = False
        while not self._is_over.is_set():
            try:
                found = self._stamp()
                is_changed = found != seen
                if is_changed or is_fresh:
                    self._follow()
                seen, is_fresh, is_lost = found, is_changed, False
            except Exception as error:  # noqa: BLE001 -- whatever it is, the tools go on and it is tried again
                if not is_lost:
                    log.warning("the state is not followed", extra={"error_message": str(error)})
                seen, is_lost = _NEVER, True
            self._is_over.wait(FOLLOW_FILE_SECONDS)


_NEVER: Final = object()


def _data_version(connection: Any) -> int:
    return int(connection.execute("PRAGMA data_version").fetchone()[0])
