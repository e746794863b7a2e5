"""MCP sessions of servers that share a PostgreSQL: any of them serves a session that one has opened.

A row holds the hash of the session's id, its agent and what the client said about itself. The id is no
credential. When a session was used last is not part of the MAC: a forged time keeps a session alive, no more.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from toolkeep.limits import MCP_SESSION_SECONDS, MCP_SESSIONS
from toolkeep.storage.postgres.group_transactions import GroupTransactions
from toolkeep.storage.postgres.shared_changes import announce
from toolkeep.storage.row_key import RowKey

log = logging.getLogger("toolkeep.store")

SESSION_TOPIC = "mcp_sessions"

_ADD = "INSERT INTO shared_mcp_sessions VALUES (%s, %s, %s, now(), %s) ON CONFLICT DO NOTHING"
# The longest idle session of the agent with most: the oldest of all would let one agent evict the others'.
_MAKE_ROOM = f"""
DELETE FROM shared_mcp_sessions WHERE id = (
    SELECT id FROM shared_mcp_sessions WHERE agent = (
        SELECT agent FROM shared_mcp_sessions GROUP BY agent ORDER BY count(*) DESC LIMIT 1
    ) ORDER BY seen_at LIMIT 1
) AND (SELECT count(*) FROM shared_mcp_sessions) > {MCP_SESSIONS}
"""  # noqa: S608 -- a number
_FIND = f"""
SELECT about, mac FROM shared_mcp_sessions
WHERE id = %s AND agent = %s AND seen_at > now() - interval '{MCP_SESSION_SECONDS} seconds'
"""  # noqa: S608 -- a number
_TOUCH = """
UPDATE shared_mcp_sessions SET seen_at = now()
WHERE id = ANY(%s) AND seen_at < now() - interval '1 minute'
"""
_EXPIRE = f"""
DELETE FROM shared_mcp_sessions WHERE seen_at < now() - interval '{MCP_SESSION_SECONDS} seconds'
"""  # noqa: S608 -- a number


class SessionRows:
    """The sessions of all servers."""

    def __init__(self, transactions: GroupTransactions, key: RowKey) -> None:
        self._transactions = transactions
        self._key = key

    async def add(self, session: str, agent: str, about: bytes) -> None:
        """Store a session under the hash of its id."""
        mac = self._mac(session, agent, about)

        def work(connection: Any) -> None:
            connection.execute(_ADD, (session, agent, about, mac))
            connection.execute(_MAKE_ROOM)

        await self._transactions.run(work)

    async def find(self, session: str, agent: str) -> bytes | None:
        """What is stored about a session of an agent; marks it as used."""

        def work(connection: Any) -> bytes | None:
            about = self._read(connection, session, agent)
            if about is not None:
                connection.execute(_TOUCH, ([session],))
            return about

        return await self._transactions.run(work)

    async def change(self, session: str, agent: str, alter: Callable[[bytes], bytes]) -> bytes | None:
        """Change what is stored; `alter` is a function of the earlier state. None if the session is over."""

        def work(connection: Any) -> bytes | None:
            connection.execute("SELECT FROM shared_mcp_sessions WHERE id = %s FOR UPDATE", (session,))
            about = self._read(connection, session, agent)
            if about is None:
                return None
            about = alter(about)
            row = (about, self._mac(session, agent, about), session)
            connection.execute("UPDATE shared_mcp_sessions SET about = %s, mac = %s WHERE id = %s", row)
            announce(connection, SESSION_TOPIC, session)
            return about

        return await self._transactions.run(work)

    async def end(self, session: str, agent: str) -> bool:
        """End a session everywhere; False if there is none."""

        def work(connection: Any) -> bool:
            found = connection.execute(_FIND, (session, agent)).fetchone() is not None
            connection.execute(
                "DELETE FROM shared_mcp_sessions WHERE id = %s AND agent = %s", (session, agent)
            )
            announce(connection, SESSION_TOPIC, session)
            return found

        return await self._transactions.run(work)

    async def living(self, sessions: Iterable[str], *, used: Iterable[str]) -> dict[str, bytes]:
        """Those that have not ended, with the MAC of each; marks some as used, and drops expired ones."""
        known, busy = list(sessions), list(used)

        def work(connection: Any) -> dict[str, bytes]:
            connection.execute(_TOUCH, (busy,))
            connection.execute(_EXPIRE)
            rows = connection.execute("SELECT id, mac FROM shared_mcp_sessions WHERE id = ANY(%s)", (known,))
            return {session: bytes(mac) for session, mac in rows}

        return await self._transactions.run(work)

    def _read(self, connection: Any, session: str, agent: str) -> bytes | None:
        row = connection.execute(_FIND, (session, agent)).fetchone()
        if row is None:
            return None
        about = bytes(row[0])
        # A forged row would let one agent find the session of another.
        if not self._key.is_authentic(row[1], "mcp session", session, agent, about):
            log.error("an MCP session in the shared database is forged, and is not used")
            return None
        return about

    def _mac(self, session: str, agent: str, about: bytes) -> bytes:
        return self._key.mac("mcp session", session, agent, about)
