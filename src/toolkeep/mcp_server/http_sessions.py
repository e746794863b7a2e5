"""HTTP sessions of handshake versions (up to 2025-11-25), identified by `Mcp-Session-Id`.

The id is random, and it is not a credential: every request is authenticated anew, and a session is found only
by the agent that opened it.
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from toolkeep.limits import MCP_SESSION_SECONDS, MCP_SESSIONS
from toolkeep.mcp_protocol.jsonrpc import Message
from toolkeep.mcp_server.connection import Connection
from toolkeep.mcp_server.resumable_streams import PRIMED_VERSION, ReplayBuffer, Streams
from toolkeep.mcp_server.subscriptions import Subscriptions

CHANGING: Final = frozenset(("resources/subscribe", "resources/unsubscribe", "logging/setLevel"))
"""The methods that change a session."""


class Sessions(Protocol):
    """The sessions of one app."""

    async def add(self, connection: Connection) -> str:
        """Open a session for a client and return its id."""

    async def find(self, name: bytes, agent: str) -> Connection | None:
        """The connection of a session, if it belongs to this agent and has not expired."""

    async def save(self, connection: Connection, message: Message) -> None:
        """Store what a request of one of the methods in `CHANGING` has changed."""

    async def end(self, name: bytes, agent: str) -> bool:
        """Close a session; False if there is none."""

    def close(self) -> None:
        """Close all sessions, or those that this server has in memory."""


class MemorySessions:
    """The sessions of a server that is alone, least recently used first."""

    def __init__(self, hub: Subscriptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._hub = hub
        self._clock = clock
        self._replay_buffer = ReplayBuffer()
        self._open: dict[str, tuple[Connection, float]] = {}

    async def add(self, connection: Connection) -> str:
        """Open a session for a client and return its id."""
        self._make_room()
        # 128 random bits: a guessed id would let one client of an agent answer questions put to another.
        name = connection.session = secrets.token_hex(16)
        connection.streams = Streams(self._replay_buffer, is_primed=connection.version == PRIMED_VERSION)
        self._open[name] = (connection, self._clock())
        self._hub.connections.add(connection)
        return name

    async def find(self, name: bytes, agent: str) -> Connection | None:
        """The connection of a session, if it belongs to this agent and has not expired."""
        key = name.decode("latin-1").strip()
        found = self._open.pop(key, None)
        if found is None:
            return None
        connection, seen = found
        now = self._clock()
        is_over = now - seen > MCP_SESSION_SECONDS and not connection.running and connection.emit is None
        if is_over:
            self._close(connection)
            return None
        # A request of another agent must neither find the session nor keep it alive; "not yours" and
        # "unknown" are the same answer, so that ids cannot be probed.
        self._open[key] = (connection, now if connection.agent == agent else seen)
        return connection if connection.agent == agent else None

    async def save(self, connection: Connection, message: Message) -> None:
        """Nothing has to be stored."""

    async def end(self, name: bytes, agent: str) -> bool:
        """Close a session; False if there is none."""
        connection = await self.find(name, agent)
        if connection is None:
            return False
        del self._open[connection.session]
        self._close(connection)
        return True

    def close(self) -> None:
        """Close all sessions."""
        for connection, _ in self._open.values():
            self._close(connection)
        self._open.clear()

    def _make_room(self) -> None:
        """Close the least recently used session of the agent that has most.

        The oldest of all would let one agent evict the sessions of others by opening many.
        """
        if len(self._open) < MCP_SESSIONS:
            return
        times = Counter(connection.agent for connection, _ in self._open.values())
        agent = max(times, key=times.__getitem__)
        name = next(name for name, (connection, _) in self._open.items() if connection.agent == agent)
        self._close(self._open.pop(name)[0])

    def _close(self, connection: Connection) -> None:
        self._hub.leave(connection)
        connection.close()
