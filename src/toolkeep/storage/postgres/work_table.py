"""Work that outlives its request, of servers that share a PostgreSQL: MCP tasks and calls answered with 202.

A row holds the state of a piece of work, and its result. It belongs to one agent. The server that runs it
writes it; where that server is gone, another ends it, once: a state that is final stays.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from toolkeep.limits import MCP_TASK_SECONDS
from toolkeep.storage.postgres.event_table import LIVES
from toolkeep.storage.postgres.group_transactions import GroupTransactions
from toolkeep.storage.postgres.shared_changes import announce
from toolkeep.storage.row_key import RowKey

log = logging.getLogger("toolkeep.store")

WORK_TOPIC: Final = "work"
Kind = Literal["task", "call", "submit"]

_PUT = """
INSERT INTO shared_work AS work VALUES (%s, %s, %s, %s, %s, %s, now(), %s)
ON CONFLICT (id) DO UPDATE SET
    state = excluded.state, is_over = excluded.is_over, changed_at = now(), mac = excluded.mac
WHERE work.server = excluded.server AND NOT work.is_over
"""
_FIND = "SELECT server, state, is_over, mac FROM shared_work WHERE id = %s AND kind = %s AND agent = %s"
# Work that goes on is kept while its server lives: how long a call waits for a person is configured.
_EXPIRE = f"""
DELETE FROM shared_work WHERE changed_at < now() - interval '{MCP_TASK_SECONDS} seconds'
AND (is_over OR NOT EXISTS (SELECT FROM shared_servers WHERE shared_servers.id = shared_work.server))
"""  # noqa: S608 -- a number


class StoredWork(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one piece of work."""

    id: str
    kind: Kind
    agent: str
    server: str
    state: bytes
    is_over: bool
    is_lost: bool = False
    """Whether it goes on, but its server is gone."""


class WorkRows:
    """The work of all servers."""

    def __init__(self, transactions: GroupTransactions, key: RowKey) -> None:
        self._transactions = transactions
        self._key = key

    def put(self, work: StoredWork) -> "asyncio.Future[None]":
        """Store a state; nothing happens once a final one is stored."""
        row = (*self._columns(work), self._key.mac(*self._parts(work)))

        def write(connection: Any) -> None:
            connection.execute(_PUT, row)
            announce(connection, WORK_TOPIC, work.id)

        return self._transactions.run(write)

    async def find(self, name: str, kind: Kind, agent: str) -> StoredWork | None:
        """A piece of work of an agent; None if there is none that a server of ours wrote."""
        if not (name.isascii() and name.isprintable()):
            return None  # none of ours; as no text for PostgreSQL, it would fail requests of others, too

        def read(connection: Any) -> StoredWork | None:
            row = connection.execute(_FIND, (name, kind, agent)).fetchone()
            if row is None:
                return None
            server, state, is_over, mac = row
            found = StoredWork(
                id=name, kind=kind, agent=agent, server=server, state=bytes(state), is_over=is_over
            )
            # A forged row would be a result that no tool gave, or one agent's work shown to another.
            if not self._key.is_authentic(mac, *self._parts(found)):
                log.error("work in the shared database is forged, and is not shown")
                return None
            (lives,) = connection.execute(LIVES, (server,)).fetchone()
            return msgspec.structs.replace(found, is_lost=not (is_over or lives))

        return await self._transactions.run(read)

    async def withdraw(self, name: str) -> None:
        """Delete work that came to nothing; a final state stays."""

        def write(connection: Any) -> None:
            connection.execute("DELETE FROM shared_work WHERE id = %s AND NOT is_over", (name,))
            announce(connection, WORK_TOPIC, name)

        await self._transactions.run(write)

    async def delete(self, names: Sequence[str]) -> None:
        """Delete work."""

        def write(connection: Any) -> None:
            connection.execute("DELETE FROM shared_work WHERE id = ANY(%s)", (list(names),))
            for name in names:
                announce(connection, WORK_TOPIC, name)

        await self._transactions.run(write)

    async def expire(self) -> None:
        """Delete old results."""
        await self._transactions.run(lambda connection: connection.execute(_EXPIRE))

    @staticmethod
    def _columns(work: StoredWork) -> tuple[Any, ...]:
        return work.id, work.kind, work.agent, work.server, work.state, work.is_over

    @staticmethod
    def _parts(work: StoredWork) -> tuple[str | bytes, ...]:
        is_over = "over" if work.is_over else ""
        return "work", work.id, work.kind, work.agent, work.server, work.state, is_over
