"""What a request needs of another server, and what other servers need of this one.

A client's request may reach any server that shares the database: an answer to a question that another server
asked, the cancellation of a request that runs there, a stream that it writes. The agent and the session are
checked by the server that the request reached; the other trusts messages, which carry a MAC.
"""

import asyncio
import contextlib
from typing import Final, NamedTuple

import msgspec

from toolkeep.errors import StoreUnavailable
from toolkeep.limits import MCP_RESUME_SECONDS
from toolkeep.mcp_protocol.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, Id, Message, ProtocolError, refusal
from toolkeep.mcp_server.connection import Connection
from toolkeep.mcp_server.http_response import Reply
from toolkeep.mcp_server.resumable_streams import split_event
from toolkeep.mcp_server.shared_sessions import SharedSessions, session_key
from toolkeep.mcp_server.tasks import OUTCOME_UNKNOWN
from toolkeep.storage.postgres.event_table import Head, StoredEvent
from toolkeep.storage.postgres.peers import Emit, Peers

_DONE: Final = b"done"


class _Answer(msgspec.Struct):
    session: str
    message: Message


class _Cancel(msgspec.Struct):
    session: str
    request: Id


class Replay(NamedTuple):
    """Stored events of a stream."""

    stream: str
    after: int
    head: Head
    events: list[StoredEvent]
    is_over: bool
    """Whether the stream has its last event."""


class Elsewhere:
    """The requests of handshake versions that concern more than one server."""

    def __init__(self, peers: Peers, sessions: SharedSessions) -> None:
        self._peers = peers
        self._sessions = sessions
        peers.on("answer", self._on_answer)
        peers.on("cancel", self._on_cancel)
        peers.on("followed", self._on_followed)
        peers.on("release", self._on_release)

    # --- for clients that are here ---------------------------------------------------------------

    async def answered(self, connection: Connection, message: Message) -> bool:
        """Pass on the answer to a question of another server; False if none is pending.

        Raises `ProtocolError` if that server is gone.
        """
        home = message.id.rpartition("-")[2] if isinstance(message.id, str) else ""
        if not home or home == self._peers.server:
            return False
        data = msgspec.json.encode(_Answer(session_key(connection.session), message))
        taken = await self._peers.request(home, "answer", data)
        if taken is None:
            raise ProtocolError(INVALID_REQUEST, "The server that asked is gone")
        return taken == _DONE

    async def cancel(self, connection: Connection, request: Id) -> None:
        """Cancel a request that may run on any other server."""
        data = msgspec.json.encode(_Cancel(session_key(connection.session), request))
        await self._peers.tell_all("cancel", data)

    async def replay(self, connection: Connection, event: str) -> Replay | None:
        """A stream of another server and its events after one; None if not all of them are stored."""
        name, after = split_event(event)
        if not name:
            return None
        read = await self._peers.events.read(name, -1)
        # Event ids of one session mean nothing in another: a client cannot replay the answers of a different
        # session.
        if read.head is None or read.head.session != session_key(connection.session) or not read.events:
            return None
        is_whole = read.events[0].number - 1 <= after <= read.events[-1].number
        if not is_whole:
            return None
        if read.head.request is None:
            # Messages that belong to no request come to this server from now on.
            await self._peers.request(read.head.server, "release", name.encode())
            again = await self._peers.events.read(name, after)
            return Replay(name, after, read.head, again.events, is_over=False)
        events = [one for one in read.events if one.number > after]
        return Replay(name, after, read.head, events, is_over=read.events[-1].is_last)

    async def follow(self, replay: Replay, reply: Reply) -> None:
        """Pass on what comes after the replayed events of another server's stream, up to its end."""
        after = replay.events[-1].number if replay.events else replay.after
        telling = asyncio.ensure_future(self._say_followed(replay.head.server, replay.stream))
        try:
            async for one in self._peers.follow(replay.stream, after, lost=_lost):
                reply.emit(one.frame, name=one.name)
        finally:
            telling.cancel()

    async def _say_followed(self, server: str, name: str) -> None:
        while True:
            with contextlib.suppress(StoreUnavailable):
                await self._peers.tell(server, "followed", name.encode())
            await asyncio.sleep(MCP_RESUME_SECONDS / 3)

    # --- for clients that are elsewhere ----------------------------------------------------------

    async def _on_answer(self, data: bytes, _: Emit) -> bytes:
        said = msgspec.json.decode(data, type=_Answer)
        connection = self._sessions.connected(said.session)
        return _DONE if connection is not None and connection.answered(said.message) else b""

    async def _on_cancel(self, data: bytes, _: Emit) -> bytes:
        said = msgspec.json.decode(data, type=_Cancel)
        connection = self._sessions.connected(said.session)
        if connection is not None:
            connection.cancel(said.request)
        return b""

    async def _on_followed(self, data: bytes, _: Emit) -> bytes:
        found = self._sessions.stream(data.decode())
        if found is not None:
            found[1].followed()
        return b""

    async def _on_release(self, data: bytes, _: Emit) -> bytes:
        found = self._sessions.stream(data.decode())
        if found is not None:
            connection, stream = found
            stream.end()
            if connection.emit == stream.emit:
                connection.emit = None
        return _DONE


def _lost(head: Head | None) -> bytes:
    request = head.request if head is not None else None
    return refusal(request, ProtocolError(INTERNAL_ERROR, OUTCOME_UNKNOWN))
