"""Bodies written by a thread of their own, many at once, so that no call waits for a file.

A killed process may lose the newest bodies, never a record: the log then names a body that is missing.
"""

import logging
import queue
import threading
from pathlib import Path

from toolkeep.forks import tell_in_forks
from toolkeep.limits import BODIES_LINGER_SECONDS, BODIES_WAITING, BODIES_WAITING_BYTES
from toolkeep.storage.bodies import Bodies

log = logging.getLogger("toolkeep.audit")


class BodyWriter:
    """The bodies of a keep, some of them written later."""

    def __init__(self, folder: Path) -> None:
        self._bodies = Bodies(folder)
        self._waiting: dict[str, bytes] = {}
        self._bytes = 0
        self._lock = threading.Lock()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_closing = threading.Event()
        self._thread: threading.Thread | None = None
        tell_in_forks(self)

    def put(self, body: bytes) -> str:
        """Keep a body now; its SHA-256."""
        return self._bodies.put(body)

    def get(self, digest: str) -> bytes:
        """A body by its hash, also one that is still to be written; raises `BodyUnavailable`."""
        waiting = self._waiting.get(digest)
        return self._bodies.get(digest) if waiting is None else waiting

    def put_later(self, digest: str, body: bytes) -> None:
        """Keep a body soon, under its hash; nobody waits for it."""
        with self._lock:
            is_full = len(self._waiting) >= BODIES_WAITING or self._bytes > BODIES_WAITING_BYTES
            if is_full or digest in self._waiting or self._is_closing.is_set():
                return
            if self._thread is None and not self._start():
                return
            was_empty = not self._waiting
            self._waiting[digest] = body
            self._bytes += len(body)
        if was_empty:
            self._bell.put(None)

    def close(self) -> None:
        """Write what waits, and end."""
        with self._lock:
            self._is_closing.set()
            thread, self._thread = self._thread, None
        if thread is not None:
            self._bell.put(None)
            thread.join()
        self._bodies.close()

    def leave_to_parent(self) -> None:
        """In a fork of the process: the parent has the thread, and writes what waits."""
        self._lock, self._bell, self._thread = threading.Lock(), queue.SimpleQueue(), None
        self._waiting, self._bytes = {}, 0

    def _start(self) -> bool:
        """Start the thread; False where there can be none: no call fails for a body that is not kept."""
        thread = threading.Thread(target=self._run, name="toolkeep-bodies", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            log.warning("bodies were not kept", extra={"error_type": type(error).__name__, "bodies": 1})
            return False
        self._thread = thread
        return True

    def _run(self) -> None:
        while self._waiting or not self._is_closing.is_set():
            self._bell.get()
            self._is_closing.wait(BODIES_LINGER_SECONDS)  # more come in the meantime
            self._write()

    def _write(self) -> None:
        with self._lock:
            taken = self._waiting.copy()
        try:
            self._bodies.put_all(taken)
        except Exception as error:  # noqa: BLE001 -- the log stands without its bodies
            fields = {"error_type": type(error).__name__, "bodies": len(taken)}
            log.warning("bodies were not kept", extra=fields)
        with self._lock:
            for digest in taken:
                self._bytes -= len(self._waiting.pop(digest))
            if self._waiting:
                self._bell.put(None)
