"""A log and bodies that last as long as the process: for a keep without a state folder, and for tests."""

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from toolkeep.audit.entry import NO_PREVIOUS, Entry, Leaf


class MemoryLog:
    """Records in a list, chained like those of a file. Nothing signs it."""

    origin = "memory"

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def append_all(self, records: Sequence[Mapping[str, Any]]) -> "list[Future[Leaf]]":
        """Append records; each future is resolved at once."""
        futures: list[Future[Leaf]] = []
        for record in records:
            previous = self.entries[-1].hash if self.entries else NO_PREVIOUS
            entry = Entry(index=len(self.entries), previous=previous, record=dict(record))
            self.entries.append(entry)
            future: Future[Leaf] = Future()
            future.set_result(Leaf(index=entry.index, hash=entry.hash, origin=self.origin))
            futures.append(future)
        return futures

    def close(self) -> None:
        """Nothing is open."""


class MemoryBodies:
    """Bodies in a dict."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}

    def put(self, body: bytes) -> str:
        """Keep a body; its SHA-256."""
        digest = hashlib.sha256(body).hexdigest()
        self.bodies[digest] = body
        return digest

    def put_later(self, digest: str, body: bytes) -> None:
        """Keep a body."""
        self.bodies[digest] = body

    def close(self) -> None:
        """Nothing is open."""

    def get(self, digest: str) -> bytes:
        """A body by its hash; KeyError where there is none."""
        return self.bodies[digest]
