"""The event log of servers that share a PostgreSQL: what one sends to a client, another can send again.

A stream is a row number 0, its head, and numbered events. Whoever writes a number first has written it: a
server that takes the writer for dead closes its stream with the next number, and only one of both is stored.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from toolkeep.limits import MCP_SESSION_SECONDS
from toolkeep.storage.postgres.group_transactions import GroupTransactions
from toolkeep.storage.postgres.shared_changes import IS_ALIVE, announce
from toolkeep.storage.row_key import RowKey

log = logging.getLogger("toolkeep.store")

EVENT_TOPIC: Final = "events"

_APPEND = """
INSERT INTO shared_events AS events VALUES (%s, %s, %s, %s, now(), %s)
ON CONFLICT (stream, number) DO UPDATE SET number = excluded.number WHERE events.mac = excluded.mac
RETURNING number
"""
_READ = """
SELECT number, frame, is_last, mac FROM shared_events
WHERE stream = %s AND (number > %s OR number = 0) ORDER BY number
"""
LIVES: Final = f"SELECT EXISTS (SELECT FROM shared_servers WHERE id = %s AND {IS_ALIVE})"  # noqa: S608 -- our own words
# A stream may be open for days: it is as old as its newest event.
_EXPIRE = f"""
DELETE FROM shared_events WHERE stream IN (
    SELECT stream FROM shared_events GROUP BY stream
    HAVING max(made_at) < now() - interval '{MCP_SESSION_SECONDS} seconds'
)
"""  # noqa: S608 -- a number


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a stream."""

    server: str
    """The server that writes it."""
    session: str
    """The hash of the id of its session."""
    request: int | str | None
    """The request that it answers."""


class StoredEvent(NamedTuple):
    """One event."""

    stream: str
    number: int
    frame: bytes
    is_last: bool

    @property
    def name(self) -> bytes:
        """Its id."""
        return f"{self.stream}-{self.number}".encode()


class Read(NamedTuple):
    """What was read of a stream."""

    head: Head | None
    events: list[StoredEvent]
    is_written: bool
    """Whether its server lives."""


class EventRows:
    """The events of all servers."""

    def __init__(self, transactions: GroupTransactions, key: RowKey) -> None:
        self._transactions = transactions
        self._key = key

    def append(
        self,
        stream: str,
        number: int,
        frame: bytes,
        *,
        head: Head | None = None,
        is_last: bool = False,
        is_followed: bool = True,
    ) -> "asyncio.Future[bool]":
        """Store an event, durably; False if another server has closed the stream before.

        `head` comes with the first event; `is_followed` says that another server may wait for it.
        """
        rows = [self._row(stream, number, frame, is_last=is_last)]
        if head is not None:
            rows.insert(0, self._row(stream, 0, msgspec.json.encode(head), is_last=False))

        def work(connection: Any) -> bool:
            made = [connection.execute(_APPEND, row) for row in rows]
            if is_followed:
                announce(connection, EVENT_TOPIC, stream)
            return made[-1].fetchone() is not None

        return self._transactions.run(work)

    async def read(self, stream: str, after: int, server: str = "") -> Read:
        """The events after a number; `server` is the writer of a stream without a head."""

        def work(connection: Any) -> Read:
            rows = connection.execute(_READ, (stream, after)).fetchall()
            found = [
                StoredEvent(stream, number, bytes(frame), is_last)
                for number, frame, is_last, mac in rows
                if self._is_ours(stream, number, bytes(frame), mac, is_last=is_last)
            ]
            head = None
            if found and found[0].number == 0:
                head = msgspec.json.decode(found.pop(0).frame, type=Head)
            writer = head.server if head is not None else server
            (is_written,) = connection.execute(LIVES, (writer,)).fetchone()
            return Read(head, found, is_written)

        return await self._transactions.run(work)

    async def drop(self, events: Sequence[tuple[str, int]]) -> None:
        """Delete single events: their session has too many."""
        streams, numbers = [stream for stream, _ in events], [number for _, number in events]
        await self._transactions.run(
            lambda connection: connection.execute(
                "DELETE FROM shared_events WHERE (stream, number) IN "
                "(SELECT * FROM unnest(%s::text[], %s::int[]))",
                (streams, numbers),
            )
        )

    def forget(self, stream: str) -> "asyncio.Future[Any]":
        """Delete a stream that was read to its end."""
        return self._transactions.run(
            lambda connection: connection.execute("DELETE FROM shared_events WHERE stream = %s", (stream,))
        )

    async def expire(self) -> None:
        """Delete old streams."""
        await self._transactions.run(lambda connection: connection.execute(_EXPIRE))

    def _row(self, stream: str, number: int, frame: bytes, *, is_last: bool) -> tuple[Any, ...]:
        mac = self._key.mac(*self._parts(stream, number, frame, is_last=is_last))
        return stream, number, frame, is_last, mac

    def _is_ours(self, stream: str, number: int, frame: bytes, mac: bytes, *, is_last: bool) -> bool:
        # A forged event would be a result that no tool gave.
        if self._key.is_authentic(mac, *self._parts(stream, number, frame, is_last=is_last)):
            return True
        log.error("an event in the shared database is forged, and is not sent")
        return False

    @staticmethod
    def _parts(stream: str, number: int, frame: bytes, *, is_last: bool) -> tuple[str | bytes, ...]:
        return "event", stream, str(number), frame, "last" if is_last else ""
