"""Record store of a keep: audit log, bodies and idempotency ledger. Protocols and in-memory twins."""

import hashlib
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol

from toolkeep.approval.approval_store import Approvals, MemoryApprovals
from toolkeep.audit.entry import NO_PREVIOUS, Entry, Leaf, chain, parse_entry
from toolkeep.audit.receipt import Receipt
from toolkeep.errors import NotRecorded
from toolkeep.events import Listener
from toolkeep.execution.idempotency import Ledger, MemoryLedger
from toolkeep.flow.session_store import MemorySessionStates, SessionStates
from toolkeep.stores.replaced_files import MemoryReplacedFiles, ReplacedFiles


class ReadableLog(Protocol):
    """An audit log to read, of this server or of another."""

    def read_back(self, stop: int | None = None) -> Iterator[Entry]:
        """The entries before an index, newest first."""


class Log(ReadableLog, Protocol):
    """The append-only audit log."""

    def append_soon(self, *records: bytes, is_alone: bool = False) -> Awaitable[Leaf]:
        """Append canonical records contiguously.

        Resolves to the position of the last one once they are durable.

        The records are written even if the awaiting task is cancelled. `is_alone` says that no other append
        is imminent.
        """


class Bodies(Protocol):
    """Content-addressed store of arguments and results."""

    def put(self, body: bytes) -> str:
        """Store a body synchronously; returns its SHA-256."""

    def put_later(self, digest: str, body: bytes, *, refused_by: str = "") -> None:
        """Store a body in the background; of a refused or failed call with its agent, for a while."""

    def get(self, digest: str) -> bytes:
        """Look up a body by hash."""

    def sizes(self, digests: Sequence[str]) -> dict[str, int]:
        """How many bytes each of some bodies has, without reading them; only those that are there."""


class KeepRecord(Protocol):
    """Everything that one keep records."""

    @property
    def log(self) -> Log:
        """The audit log."""

    @property
    def bodies(self) -> Bodies:
        """Bodies that the log references by hash."""

    @property
    def ledger(self) -> Ledger:
        """The idempotency ledger."""

    @property
    def approvals(self) -> Approvals:
        """The approval store."""

    @property
    def sessions(self) -> SessionStates:
        """The states of sessions."""

    @property
    def replaced(self) -> ReplacedFiles:
        """What built-in tools replaced in files."""

    def secret_key(self) -> bytes:
        """The HMAC key for secrets."""

    def receipt(self, index: int) -> Receipt:
        """The receipt of the record at an index."""

    def witness_request(self, old_size: int) -> str:
        """The cosigning request to a witness that holds this size, as text."""

    def records_of(self, call_id: str) -> list[dict[str, Any]]:
        """The records of one call, in order."""

    def report_to(self, tell: Listener) -> None:
        """Tell alarms about the log as events."""

    def watch_servers(self, heard: Callable[[int], object]) -> None:
        """Call `heard` each second, in any thread, with the number of servers that share the record."""

    def close(self) -> None:
        """Flush and close."""


class MemoryRecord:
    """In-memory record store, for a keep without a state folder and for tests."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.bodies = MemoryBodies()
        self.ledger = MemoryLedger()
        self.approvals = MemoryApprovals()
        self.sessions = MemorySessionStates()
        self.replaced = MemoryReplacedFiles()
        # Per process: HMACs of an in-memory record cannot be linked to those of another run.
        self._key = secrets.token_bytes(32)

    def secret_key(self) -> bytes:
        """The HMAC key for secrets."""
        return self._key

    def receipt(self, index: int) -> Receipt:
        """Not available: an in-memory log is not signed."""
        raise NotRecorded(f"record {index} is only in memory; open the keep with a state folder")

    def witness_request(self, old_size: int) -> str:
        """Not available: an in-memory log is not signed."""
        raise NotRecorded(f"no log of size {old_size} is signed: this one is only in memory")

    def records_of(self, call_id: str) -> list[dict[str, Any]]:
        """The records of one call, in order."""
        return [entry.record for entry in self.log.entries if entry.record.get("call") == call_id]

    def report_to(self, tell: Listener) -> None:
        """No-op: nobody watches a log in memory."""

    def watch_servers(self, heard: Callable[[int], object]) -> None:
        """No-op: nobody shares it."""

    def close(self) -> None:
        """No-op."""


class MemoryLog:
    """In-memory log with a hash chain like that of a file, but unsigned."""

    origin = "memory"

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._last = NO_PREVIOUS
        self._lock = threading.Lock()

    @property
    def entries(self) -> list[Entry]:
        """All entries, in order."""
        return [entry for line in self._lines if (entry := parse_entry(line))]

    def read_back(self, stop: int | None = None) -> Iterator[Entry]:
        """The entries before an index, newest first."""
        return reversed(self.entries[:stop])

    async def append_soon(self, *records: bytes, is_alone: bool = False) -> Leaf:  # noqa: ARG002 -- always immediate
        """Append canonical records; returns the position of the last one."""
        with self._lock:
            lines, leaves = chain(records, len(self._lines), self._last)
            self._lines += lines
            self._last = leaves[-1].hex()
            return Leaf(index=len(self._lines) - 1, hash=self._last, origin=self.origin)

    def close(self) -> None:
        """No-op."""


class MemoryBodies:
    """In-memory body store."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}

    def put(self, body: bytes) -> str:
        """Store a body; returns its SHA-256."""
        digest = hashlib.sha256(body).hexdigest()
        self.bodies[digest] = body
        return digest

    def put_later(self, digest: str, body: bytes, *, refused_by: str = "") -> None:  # noqa: ARG002 -- no quota
        """Store a body."""
        self.bodies[digest] = body

    def close(self) -> None:
        """No-op."""

    def get(self, digest: str) -> bytes:
        """Look up a body by hash; raises KeyError."""
        return self.bodies[digest]

    def sizes(self, digests: Sequence[str]) -> dict[str, int]:
        """How many bytes each has."""
        return {digest: len(self.bodies[digest]) for digest in digests if digest in self.bodies}
