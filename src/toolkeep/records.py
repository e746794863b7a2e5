"""What a keep writes down about calls: log, bodies and ledger. A Protocol, and its twin in memory."""

import secrets
from collections.abc import Awaitable, Iterator
from typing import Any, Protocol

from toolkeep.approval.store import Approvals, MemoryApprovals
from toolkeep.audit.entry import Entry, Leaf
from toolkeep.audit.memory import MemoryBodies, MemoryLog
from toolkeep.audit.receipt import Receipt
from toolkeep.errors import NotRecorded
from toolkeep.execution.ledger import Ledger, MemoryLedger


class Log(Protocol):
    """Where records become durable."""

    def append_soon(self, *records: bytes, is_alone: bool = False) -> Awaitable[Leaf]:
        """Append canonical records next to each other; where the last one stands, when they are durable.

        What happened is recorded even if nobody waits for it any more. `is_alone` says that nobody else is
        about to append.
        """

    def read_back(self, stop: int | None = None) -> Iterator[Entry]:
        """The entries before an index, newest first."""


class Bodies(Protocol):
    """Where arguments and results are kept, by their hash."""

    def put(self, body: bytes) -> str:
        """Keep a body now; its SHA-256."""

    def put_later(self, digest: str, body: bytes) -> None:
        """Keep a body soon; nobody waits for it."""

    def get(self, digest: str) -> bytes:
        """A body by its hash."""


class KeepRecord(Protocol):
    """The record of one keep."""

    @property
    def log(self) -> Log:
        """What happened, in order."""

    @property
    def bodies(self) -> Bodies:
        """What the log only names by hash."""

    @property
    def ledger(self) -> Ledger:
        """Which keyed calls were run."""

    @property
    def approvals(self) -> Approvals:
        """What people were asked, and said."""

    def secret_key(self) -> bytes:
        """The key under which secrets are hashed."""

    def receipt(self, index: int) -> Receipt:
        """The receipt for the record at an index."""

    def witness_request(self, old_size: int) -> str:
        """The request to a witness that signed the log last at this size, as text."""

    def records_of(self, call_id: str) -> list[dict[str, Any]]:
        """The records of one call, in order."""

    def close(self) -> None:
        """Write what waits, and let go."""


class MemoryRecord:
    """A record that lasts as long as the process: for a keep without a state folder, and for tests."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.bodies = MemoryBodies()
        self.ledger = MemoryLedger()
        self.approvals = MemoryApprovals()
        self._key = secrets.token_bytes(32)

    def secret_key(self) -> bytes:
        """The key under which secrets are hashed."""
        return self._key

    def receipt(self, index: int) -> Receipt:
        """There is none: nothing signs this log."""
        raise NotRecorded(f"record {index} is only in memory; open the keep with a state folder")

    def witness_request(self, old_size: int) -> str:
        """There is none: nothing signs this log."""
        raise NotRecorded(f"no log of size {old_size} is signed: this one is only in memory")

    def records_of(self, call_id: str) -> list[dict[str, Any]]:
        """The records of one call, in order."""
        return [entry.record for entry in self.log.entries if entry.record.get("call") == call_id]

    def close(self) -> None:
        """Nothing is open."""
