"""Sessions over HTTP (up to 2025-11-25): a client that has shaken hands, by a name that cannot be guessed."""

import secrets
import time
from collections import Counter
from collections.abc import Callable

from toolkeep.limits import MCP_SESSION_SECONDS, MCP_SESSIONS
from toolkeep.mcp.connection import Connection
from toolkeep.mcp.hub import Hub
from toolkeep.mcp.resuming import PRIMED_VERSION, Shelf, Streams


class Sessions:
    """The sessions of one app, longest silent first."""

    def __init__(self, hub: Hub, clock: Callable[[], float] = time.monotonic) -> None:
        self._hub = hub
        self._clock = clock
        self._shelf = Shelf()
        self._open: dict[str, tuple[Connection, float]] = {}

    def add(self, connection: Connection) -> str:
        """The name of a session with this client."""
        self._make_room()
        name = connection.session = secrets.token_hex(16)
        connection.streams = Streams(self._shelf, is_primed=connection.version == PRIMED_VERSION)
        self._open[name] = (connection, self._clock())
        self._hub.connections.add(connection)
        return name

    def find(self, name: bytes, agent: str) -> Connection | None:
        """The client of a session, if it is this agent's."""
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
        self._open[key] = (connection, now if connection.agent == agent else seen)
        return connection if connection.agent == agent else None

    def end(self, name: bytes, agent: str) -> bool:
        """End a session; whether there was one."""
        connection = self.find(name, agent)
        if connection is None:
            return False
        del self._open[connection.session]
        self._close(connection)
        return True

    def close(self) -> None:
        """End them all."""
        for connection, _ in self._open.values():
            self._close(connection)
        self._open.clear()

    def _make_room(self) -> None:
        """End the one that was silent longest, of the agent that has most: nobody pushes others out."""
        if len(self._open) < MCP_SESSIONS:
            return
        times = Counter(connection.agent for connection, _ in self._open.values())
        agent = max(times, key=times.__getitem__)
        name = next(name for name, (connection, _) in self._open.items() if connection.agent == agent)
        self._close(self._open.pop(name)[0])

    def _close(self, connection: Connection) -> None:
        self._hub.connections.discard(connection)
        connection.close()
