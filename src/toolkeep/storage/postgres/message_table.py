"""Messages from one server to another through the PostgreSQL that they share.

A message is acted on once, by the server that it names. An old one that is put back names a question, a
request or a piece of work that is over by then.
"""

import logging
from typing import Any, Final, NamedTuple

from toolkeep.storage.postgres.group_transactions import GroupTransactions
from toolkeep.storage.postgres.shared_changes import IS_ALIVE, announce
from toolkeep.storage.row_key import RowKey

log = logging.getLogger("toolkeep.store")

MESSAGE_TOPIC: Final = "messages"

_SEND = "INSERT INTO shared_messages VALUES (%s, %s, %s, now(), %s) ON CONFLICT DO NOTHING"
_LIVING = f"SELECT id FROM shared_servers WHERE id <> %s AND {IS_ALIVE}"  # noqa: S608 -- our own words
_EXPIRE = "DELETE FROM shared_messages WHERE made_at < now() - interval '10 minutes'"


class StoredMessage(NamedTuple):
    """One message."""

    id: str
    body: bytes


class MessageRows:
    """The messages of all servers."""

    def __init__(self, transactions: GroupTransactions, key: RowKey) -> None:
        self._transactions = transactions
        self._key = key

    async def send(self, name: str, server: str, body: bytes) -> None:
        """Leave a message for a server."""
        await self._transactions.run(lambda connection: self._send(connection, name, server, body))

    async def send_to_all(self, name: str, body: bytes, *, but: str) -> None:
        """Leave a message for every other server that lives."""

        def work(connection: Any) -> None:
            for (server,) in connection.execute(_LIVING, (but,)).fetchall():
                self._send(connection, f"{name}-{server}", server, body)

        await self._transactions.run(work)

    async def receive(self, server: str) -> list[StoredMessage]:
        """The messages for a server, oldest first; they stay until they are deleted."""

        def work(connection: Any) -> list[StoredMessage]:
            query = "SELECT id, body, mac FROM shared_messages WHERE server = %s ORDER BY made_at"
            ours, forged = [], []
            for name, body, mac in connection.execute(query, (server,)).fetchall():
                # A forged message could answer a question in the place of its person.
                if self._key.is_authentic(mac, "message", name, server, body):
                    ours.append(StoredMessage(name, body))
                else:
                    forged.append(name)
            if forged:  # deleted, else it would be told about them each second
                log.error("messages in the shared database are forged", extra={"messages": len(forged)})
                connection.execute("DELETE FROM shared_messages WHERE id = ANY(%s)", (forged,))
            return ours

        return await self._transactions.run(work)

    async def delete(self, names: list[str]) -> None:
        """Delete messages that were acted on, and those that nobody fetched."""

        def work(connection: Any) -> None:
            connection.execute("DELETE FROM shared_messages WHERE id = ANY(%s)", (names,))
            connection.execute(_EXPIRE)

        await self._transactions.run(work)

    def _send(self, connection: Any, name: str, server: str, body: bytes) -> None:
        row = (name, server, body, self._key.mac("message", name, server, body))
        connection.execute(_SEND, row)
        announce(connection, MESSAGE_TOPIC, server)
