"""Bodies written by a thread of their own, so that no call waits for a file.

A killed process may lose the newest bodies, never a record: the log then names a body that is missing.
"""

import logging
import queue
import threading
from pathlib import Path

from toolkeep.storage.bodies import Bodies

log = logging.getLogger("toolkeep.audit")

_WAITING = 10_000
"""Bodies that may wait; beyond, one is not kept rather than a call held up."""


class BodyWriter:
    """The bodies of a keep, some of them written later."""

    def __init__(self, folder: Path) -> None:
        self._bodies = Bodies(folder)
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, body: bytes) -> str:
        """Keep a body now; its SHA-256."""
        return self._bodies.put(body)

    def get(self, digest: str) -> bytes:
        """A body by its hash; raises `BodyUnavailable`."""
        return self._bodies.get(digest)

    def put_later(self, digest: str, body: bytes) -> None:  # noqa: ARG002 -- the hash is worked out again
        """Keep a body soon; nobody waits for it."""
        if self._waiting.qsize() >= _WAITING:
            return
        self._waiting.put(body)
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="toolkeep-bodies", daemon=True)
                    self._thread.start()

    def close(self) -> None:
        """Write what waits, and end."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._waiting.put(None)
            thread.join()

    def _run(self) -> None:
        while (body := self._waiting.get()) is not None:
            try:
                self._bodies.put(body)
            except Exception as error:  # noqa: BLE001 -- the log stands without its bodies
                log.warning("a body was not kept", extra={"error_type": type(error).__name__})
