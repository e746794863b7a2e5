"""HTTP sessions of servers that share a database: any of them serves a session that one has opened.

Each request reads the row of its session. What runs for a client, and its open streams, stay with the server
that has them; that server closes them when the session ends.
"""

import asyncio
import hashlib
import secrets
from typing import Any

import msgspec

from toolkeep.mcp_protocol.jsonrpc import Message
from toolkeep.mcp_server.connection import Connection
from toolkeep.mcp_server.resumable_streams import PRIMED_VERSION, ReplayBuffer, Stream, Streams
from toolkeep.mcp_server.subscriptions import Subscriptions
from toolkeep.storage.postgres.event_table import Head
from toolkeep.storage.postgres.mcp_session_table import SESSION_TOPIC
from toolkeep.storage.postgres.peers import Peers


class _About(msgspec.Struct):
    """What is stored about a session."""

    version: str
    capabilities: dict[str, Any]
    client_info: dict[str, Any]
    log_level: str
    watched: list[str]


_decode = msgspec.json.Decoder(_About).decode


class SharedSessions:
    """The sessions of all servers, with the connections of this one."""

    def __init__(self, hub: Subscriptions, peers: Peers) -> None:
        self._hub = hub
        self._peers = peers
        self._replay_buffer = ReplayBuffer()
        self._open: dict[str, Connection] = {}
        """By the hash of the session's id."""
        self._macs: dict[str, bytes] = {}
        """Of the rows as they were read last, for connections with an open stream."""
        self._is_checking = False
        peers.listen(SESSION_TOPIC, self._changed)

    async def add(self, connection: Connection) -> str:
        """Open a session for a client and return its id."""
        self._peers.attend()
        # 128 random bits: a guessed id would let one client of an agent answer questions put to another.
        name = connection.session = secrets.token_hex(16)
        about = _About(
            version=connection.version,
            capabilities=connection.capabilities,
            client_info=connection.client_info,
            log_level=connection.log_level,
            watched=[],
        )
        key = session_key(name)
        await self._peers.sessions.add(key, connection.agent, msgspec.json.encode(about))
        self._take_in(key, connection)
        return name

    async def find(self, name: bytes, agent: str) -> Connection | None:
        """The connection of a session, if it belongs to this agent and has not expired."""
        session = name.decode("latin-1").strip()
        if not session:
            return None
        self._peers.attend()
        key = session_key(session)
        about = await self._peers.sessions.find(key, agent)
        if about is None:
            # "Not yours" and "unknown" are the same answer, so that ids cannot be probed.
            if key in self._open and self._open[key].agent == agent:
                self._drop(key)
            return None
        if key not in self._open:
            connection = Connection(agent, session=session)
            said = _decode(about)
            connection.version = said.version
            connection.introduce(said.capabilities, said.client_info)
            self._take_in(key, connection)
        self._refresh(self._open[key], about)
        return self._open[key]

    async def save(self, connection: Connection, message: Message) -> None:
        """Store what a request has changed."""
        uri, level = message.params.get("uri"), message.params.get("level")

        def alter(before: bytes) -> bytes:
            about = _decode(before)
            watched = set(about.watched)
            if message.method == "logging/setLevel":
                about.log_level = str(level)
            elif message.method == "resources/subscribe":
                watched.add(str(uri))
            else:
                watched.discard(str(uri))
            about.watched = sorted(watched)
            return msgspec.json.encode(about)

        about = await self._peers.sessions.change(session_key(connection.session), connection.agent, alter)
        if about is not None:
            self._refresh(connection, about)

    async def end(self, name: bytes, agent: str) -> bool:
        """Close a session on all servers; False if there is none."""
        self._peers.attend()
        key = session_key(name.decode("latin-1").strip())
        is_ended = await self._peers.sessions.end(key, agent)
        if is_ended:
            self._drop(key)
        return is_ended

    def close(self) -> None:
        """Close what runs here; the sessions go on at other servers."""
        for key in list(self._open):
            self._drop(key)

    def connected(self, key: str) -> Connection | None:
        """The connection of a session, by its hash, if this server has one."""
        return self._open.get(key)

    def stream(self, name: str) -> tuple[Connection, Stream] | None:
        """A stream of this server."""
        for connection in self._open.values():
            if connection.streams is not None and (found := connection.streams.named(name)) is not None:
                return connection, found
        return None

    def _take_in(self, key: str, connection: Connection) -> None:
        connection.home = self._peers.server
        is_primed = connection.version == PRIMED_VERSION
        log = SharedStreamLog(self._peers, key)
        connection.streams = Streams(self._replay_buffer, is_primed=is_primed, log=log)
        self._open[key] = connection
        self._hub.connections.add(connection)

    def _refresh(self, connection: Connection, about: bytes) -> None:
        said = _decode(about)
        connection.log_level = said.log_level
        watched = set(said.watched)
        if watched != connection.watched:
            connection.watched = watched
            if connection.emit is not None:
                self._peers.spawn(self._hub.hold_watched(connection))

    def _changed(self, key: str) -> None:
        """A session has changed somewhere; at an empty key, any may have."""
        if key in self._open:
            self._peers.spawn(self._check([key]))
        elif not key and self._open and not self._is_checking:
            self._peers.spawn(self._check_all())

    async def _check_all(self) -> None:
        self._is_checking = True
        try:
            await self._check(list(self._open))
        finally:
            self._is_checking = False

    async def _check(self, keys: list[str]) -> None:
        """Close the sessions that ended elsewhere, and follow changes of the others."""
        used = [key for key in keys if (one := self._open.get(key)) is not None and (one.running or one.emit)]
        living = await self._peers.sessions.living(keys, used=used)
        for key in keys:
            connection = self._open.get(key)
            if connection is None:
                continue
            if key not in living:
                self._drop(key)
            elif connection.emit is not None and self._macs.get(key) != living[key]:
                about = await self._peers.sessions.find(key, connection.agent)
                if about is not None:
                    self._macs[key] = living[key]
                    self._refresh(connection, about)

    def _drop(self, key: str) -> None:
        connection = self._open.pop(key, None)
        self._macs.pop(key, None)
        if connection is not None:
            self._hub.leave(connection)
            connection.close()


class SharedStreamLog:
    """The events of one session in the shared database."""

    def __init__(self, peers: Peers, session: str) -> None:
        self._peers = peers
        self._session = session

    def append(self, stream: Stream, frame: bytes, *, is_last: bool) -> "asyncio.Future[bool]":
        """Store the newest event of a stream; False if another server has closed the stream."""
        head = None
        if stream.sent == 1:
            head = Head(server=self._peers.server, session=self._session, request=stream.request)
        return self._peers.events.append(
            stream.name,
            stream.sent,
            frame,
            head=head,
            is_last=is_last,
            is_followed=stream.is_followed,
        )

    def drop(self, stream: Stream, number: int) -> None:
        """Delete an event."""
        self._peers.drop_later(stream.name, number)


def session_key(session: str) -> str:
    """The hash of a session's id, under which other servers find it."""
    return hashlib.sha256(session.encode()).hexdigest()
