"""A log and bodies that last as long as the process: for a keep without a state folder, and for tests."""

import hashlib
import threading
from collections.abc import Iterator

from toolkeep.audit.entry import NO_PREVIOUS, Entry, Leaf, chain, parse_entry


class MemoryLog:
    """Records in a list, chained like those of a file. Nothing signs it."""

    origin = "memory"

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._last = NO_PREVIOUS
        self._lock = threading.Lock()

    @property
    def entries(self) -> list[Entry]:
        """What was recorded, in order."""
        return [entry for line in self._lines if (entry := parse_entry(line))]

    def read_back(self, stop: int | None = None) -> Iterator[Entry]:
        """The entries before an index, newest first."""
        return reversed(self.entries[:stop])

    async def append_soon(self, *records: bytes, is_alone: bool = False) -> Leaf:  # noqa: ARG002 -- at once anyway
        """Append canonical records; where the last one stands."""
        with self._lock:
            lines, leaves = chain(records, len(self._lines), self._last)
            self._lines += lines
            self._last = leaves[-1].hex()
            return Leaf(index=len(self._lines) - 1, hash=self._last, origin=self.origin)

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
