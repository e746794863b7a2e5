"""Asynchronous writes of bodies: a thread batches them, so that no call waits for the disk.

A killed process may lose the newest bodies, never a record: the log then names a missing body.
"""

import logging
import queue
import threading
from collections.abc import Sequence
from pathlib import Path

from toolkeep.host.after_fork import register_after_fork
from toolkeep.limits import BODIES_LINGER_SECONDS, BODIES_WAITING, BODIES_WAITING_BYTES
from toolkeep.storage.sqlite.bodies_db import Bodies

log = logging.getLogger("toolkeep.audit")


class BodyWriter:
    """The bodies of a keep, with a bounded queue of writes."""

    def __init__(self, folder: Path) -> None:
        self._bodies = Bodies(folder)
        self._waiting: dict[str, bytes] = {}
        self._refused: dict[str, str] = {}
        """The agents of those queued bodies that are of refused calls."""
        self._bytes = 0
        self._lock = threading.Lock()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_closing = threading.Event()
        self._thread: threading.Thread | None = None
        register_after_fork(self)

    def put(self, body: bytes) -> str:
        """Store a body now; its SHA-256."""
        return self._bodies.put(body)

    def get(self, digest: str) -> bytes:
        """A body by its hash, also a queued one; raises `BodyUnavailable`."""
        waiting = self._waiting.get(digest)
        return self._bodies.get(digest) if waiting is None else waiting

    def get_all(self, digests: Sequence[str], *, most_bytes: int) -> dict[str, bytes]:
        """Those of some bodies that are there, and not longer; queued ones, too."""
        waiting = {digest: body for digest in digests if (body := self._waiting.get(digest)) is not None}
        stored = self._bodies.get_all([one for one in digests if one not in waiting], most_bytes=most_bytes)
        return stored | {digest: body for digest, body in waiting.items() if len(body) <= most_bytes}

    def sizes(self, digests: Sequence[str]) -> dict[str, int]:
        """How many bytes each of some bodies has; queued ones, too."""
        waiting = {digest: len(body) for digest in digests if (body := self._waiting.get(digest)) is not None}
        return self._bodies.sizes([one for one in digests if one not in waiting]) | waiting

    def refusers(self, digests: Sequence[str]) -> dict[str, str]:
        """The agents of those bodies that are kept for a while only."""
        with self._lock:
            waiting = {digest: self._refused.get(digest, "") for digest in digests if digest in self._waiting}
        found = self._bodies.refusers([one for one in digests if one not in waiting])
        return found | {digest: agent for digest, agent in waiting.items() if agent}

    def erase(self, digest: str, *, before: float) -> None:
        """Erase a stored body that was last stored before a time."""
        self._bodies.erase(digest, before=before)

    def put_later(self, digest: str, body: bytes, *, refused_by: str = "") -> None:
        """Queue a body under its hash; dropped where the queue is full, since no call may wait for it.

        `refused_by` is the agent whose call was refused or failed: such bodies are kept for a while.
        """
        # Refused calls may not crowd out the others: they get half of the queue.
        share = 2 if refused_by else 1
        with self._lock:
            is_full = (
                len(self._waiting) >= BODIES_WAITING // share or self._bytes > BODIES_WAITING_BYTES // share
            )
            if digest in self._waiting and not refused_by:
                self._refused.pop(digest, None)
            if is_full or digest in self._waiting or self._is_closing.is_set():
                return
            if self._thread is None and not self._start():
                return
            was_empty = not self._waiting
            self._waiting[digest] = body
            if refused_by:
                self._refused[digest] = refused_by
            self._bytes += len(body)
        if was_empty:
            self._bell.put(None)

    def close(self) -> None:
        """Write the queue, and stop."""
        with self._lock:
            self._is_closing.set()
            thread, self._thread = self._thread, None
        if thread is not None:
            self._bell.put(None)
            thread.join()
        self._bodies.close()

    def leave_to_parent(self) -> None:
        """After fork(), in the child: the parent has the thread, and writes the queue."""
        self._lock, self._bell, self._thread = threading.Lock(), queue.SimpleQueue(), None
        self._waiting, self._refused, self._bytes = {}, {}, 0

    def _start(self) -> bool:
        """Start the thread; False where that fails: no call fails for a body that is not stored."""
        thread = threading.Thread(target=self._run, name="toolkeep-bodies", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            log.warning("bodies were not stored", extra={"error_type": type(error).__name__, "bodies": 1})
            return False
        self._thread = thread
        return True

    def _run(self) -> None:
        while self._waiting or not self._is_closing.is_set():
            self._bell.get()
            self._is_closing.wait(BODIES_LINGER_SECONDS)  # let more bodies join the batch
            self._write()

    def _write(self) -> None:
        with self._lock:
            taken, refused = self._waiting.copy(), self._refused.copy()
        try:
            self._bodies.put_all(taken, refused)
        except Exception as error:  # noqa: BLE001 -- the log is valid without its bodies
            fields = {"error_type": type(error).__name__, "bodies": len(taken)}
            log.warning("bodies were not stored", extra=fields)
        with self._lock:
            for digest in taken:
                if digest in refused and digest not in self._refused:
                    continue  # a call that passed has it too, since: it is written once more, to stay
                self._bytes -= len(self._waiting.pop(digest))
                self._refused.pop(digest, None)
            if self._waiting:
                self._bell.put(None)
