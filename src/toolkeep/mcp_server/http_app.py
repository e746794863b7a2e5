"""MCP over Streamable HTTP as an ASGI app: a JSON response, or an SSE stream for several messages.

The embedding app authenticates: `identify` returns the agent of a request, by default that of the server.
On its own, the app accepts requests for loopback hosts only. A client that closes the response cancels its
request.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import jiter

from toolkeep.calls import RegisteredTool
from toolkeep.errors import StoreUnavailable
from toolkeep.mcp_protocol.batch import BATCH_VERSION, is_batch, joined, read_batch
from toolkeep.mcp_protocol.header_params import annotated
from toolkeep.mcp_protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    OVERLOADED,
    Id,
    Message,
    ProtocolError,
    Unreadable,
    answer,
    is_id,
    read_message,
    refusal,
)
from toolkeep.mcp_protocol.versions import LISTEN, http_status
from toolkeep.mcp_server.connection import Connection
from toolkeep.mcp_server.disconnects import DisconnectWatch
from toolkeep.mcp_server.dispatch import McpServer, log_level_of
from toolkeep.mcp_server.http_headers import (
    LAST_EVENT_HEADER,
    LOOPBACK,
    SESSION_HEADER,
    Head,
    Headers,
    Heads,
    check_modern,
    check_params,
)
from toolkeep.mcp_server.http_response import Reply
from toolkeep.mcp_server.http_sessions import CHANGING, MemorySessions, Sessions
from toolkeep.mcp_server.resumable_streams import Stream, Streams
from toolkeep.network.own_endpoints import OwnPorts

if TYPE_CHECKING:
    from toolkeep.mcp_server.elsewhere import Elsewhere
    from toolkeep.storage.postgres.peers import Peers

log = logging.getLogger("toolkeep.mcp")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Identify = Callable[[Scope], str | None]
"""Returns the agent of a request; None if it is not authenticated."""

_REMEMBERED_TOOLS: Final = 10_000
"""Cached definitions: as many as the tools of one configuration file (`CUSTOM_TOOLS`)."""


class TooLong(Exception):
    """The body exceeds the limit."""


class Gone(Exception):
    """The client disconnected before it had sent the whole body."""


class Asked(NamedTuple):
    """One HTTP request: its agent, its parsed head, and the reply."""

    agent: str
    head: Head
    headers: Headers
    receive: Receive
    reply: Reply

    @property
    def session(self) -> bytes:
        """The session id of the request; empty if there is none."""
        return self.headers.raw(SESSION_HEADER)


class McpApp:
    """The ASGI app of one server."""

    def __init__(
        self,
        server: McpServer,
        *,
        hosts: Iterable[str] = LOOPBACK,
        identify: Identify | None = None,
        path: str | None = None,
    ) -> None:
        """`hosts` are the accepted host names; `path`, if given, is the only path that is served."""
        self._server = server
        self._heads = Heads(hosts)
        self._identify = identify or (lambda _: server.agent)
        self._path = path
        self._sessions: Sessions = MemorySessions(server.hub)
        self._elsewhere: Elsewhere | None = None
        if server.peers is not None:
            self._share(server.peers)
        self._watch = DisconnectWatch()
        self._listening: dict[asyncio.Task[Any], Reply] = {}
        self._has_headers: dict[str, bool] = {}
        self._own_ports = OwnPorts()

    def _share(self, peers: "Peers") -> None:
        """Serve the sessions of all servers on the same database."""
        from toolkeep.mcp_server.elsewhere import Elsewhere
        from toolkeep.mcp_server.shared_sessions import SharedSessions

        sessions = SharedSessions(self._server.hub, peers)
        self._sessions, self._elsewhere = sessions, Elsewhere(peers, sessions)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or the lifespan of the server."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            self._own_ports.note(scope)
            await self._request(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            if event["type"] == "lifespan.shutdown":
                self.close()
            await send({"type": event["type"] + ".complete"})
            if event["type"] == "lifespan.shutdown":
                return

    def let_go(self) -> None:
        """Close idle SSE streams at shutdown; they would never end by themselves."""
        for task, reply in self._listening.items():
            reply.advise_retry()
            task.cancel()

    def close(self) -> None:
        """Close every session and cancel suspended work."""
        self._own_ports.release()
        self._sessions.close()
        self._server.close()

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers.of(scope)
        head = self._heads.read(headers)
        reply = Reply(send)
        # First of all checks: a web page can reach this port through DNS rebinding or a cross-origin request,
        # and even an error message would tell it that the server is here.
        if not head.is_allowed:
            return await reply.status(403)
        if self._path is not None and scope["path"] != self._path:
            return await reply.status(404)
        # The agent comes from the transport's authentication, never from a session id: an id that leaks must
        # not carry somebody else's permissions.
        agent = self._identify(scope)
        if agent is None:
            return await reply.status(401)
        self._server.hub.attend()
        asked = Asked(agent, head, headers, receive, reply)
        try:
            await self._routed(scope["method"], asked)
        except StoreUnavailable:
            # The shared database is away: whose session this is cannot be known.
            if reply.is_stream:
                reply.end()
                await reply.until_closed()
            else:
                await reply.json(503, refusal(None, ProtocolError(INTERNAL_ERROR, _AWAY)))
        return None

    async def _routed(self, method: str, asked: Asked) -> None:
        reply = asked.reply
        match method:
            case "POST" if asked.head.is_json:
                await self._post(asked)
            case "POST":
                await reply.status(415)
            case "GET" if (connection := await self._session(asked)) is not None:
                await self._stream(connection, asked)
            case "DELETE" if await self._sessions.end(asked.session, asked.agent):
                await reply.status(204)
            case "GET" | "DELETE" if asked.session:
                await reply.status(404)
            case _:
                await reply.status(405, [(b"allow", b"POST")])

    async def _session(self, asked: Asked) -> Connection | None:
        """The connection of the session that the request names, if it belongs to the request's agent."""
        return await self._sessions.find(asked.session, asked.agent)

    async def _post(self, asked: Asked) -> None:
        reply = asked.reply
        try:
            body = await read_body(asked.receive, asked.headers, self._server.limits.message_bytes)
            if is_batch(body) and (batcher := await self._batcher(asked)) is not None:
                return await self._answer_batch(read_batch(body), batcher, asked)
            message = read_message(body)
        except TooLong:
            return await reply.status(413, [(b"connection", b"close")])
        except Gone:
            return None
        except Unreadable as error:
            return await reply.json(400, refusal(error.id, error))
        if message.method and message.id is not None:
            return await self._answer(message, message.id, asked)
        return await self._take(message, asked)

    async def _take(self, message: Message, asked: Asked) -> None:
        """Handle a notification, or the response to a request of ours; neither gets an answer."""
        reply = asked.reply
        if asked.head.is_modern:
            # 2026-07-28 has no responses or cancellations by id: ids of different clients may be equal,
            # and one must not touch the work of another.
            error = ProtocolError(INVALID_REQUEST, "There is nothing to answer")
            return await reply.status(202) if message.method else await reply.json(400, refusal(None, error))
        connection = await self._session(asked)
        if connection is None:
            return await reply.status(404 if asked.session else 400)
        if message.method:
            await self._notice(message, connection)
            return await reply.status(202)
        try:
            return await reply.status(202 if await self._answered(message, connection) else 400)
        except ProtocolError as error:
            return await reply.json(400, refusal(None, error))

    async def _notice(self, message: Message, connection: Connection) -> None:
        """Handle a notification; the request that it cancels may run on another server."""
        cancelled = message.params.get("requestId") if message.method == "notifications/cancelled" else None
        if self._elsewhere is not None and is_id(cancelled) and cancelled not in connection.running:
            await self._elsewhere.cancel(connection, cancelled)
        self._server.notice(message, connection)

    async def _answered(self, message: Message, connection: Connection) -> bool:
        """Take the response to a request of ours, or of another server; False if none is pending."""
        if connection.answered(message):
            return True
        return self._elsewhere is not None and await self._elsewhere.answered(connection, message)

    async def _answer(self, message: Message, message_id: Id, asked: Asked) -> None:
        """Handle a request."""
        reply, is_modern = asked.reply, asked.head.is_modern
        extra: list[tuple[bytes, bytes]] = []
        stream: Stream | None = None
        try:
            if is_modern:
                connection = self._modern(message, asked)
            else:
                is_new = message.method == "initialize"
                found = Connection(asked.agent) if is_new else await self._session(asked)
                if found is None:
                    return await reply.status(404 if asked.session else 400)
                connection = found
                if message_id in connection.running:
                    raise _under_way()
                stream = _resumable(connection, reply, message_id)
            frame = await self._handled(message, message_id, connection, asked, stream)
            if message.method == "initialize":
                extra = [(SESSION_HEADER, (await self._sessions.add(connection)).encode())]
            elif message.method in CHANGING:
                await self._sessions.save(connection, message)
            status = 200
        except ProtocolError as error:
            frame = refusal(message_id, error)
            status = 429 if error.code == OVERLOADED else http_status(error, is_modern=is_modern)
        except asyncio.CancelledError:
            if not reply.is_gone:
                raise
            return None
        if stream is not None and stream.has_begun:
            stream.finish(frame)
            if not reply.is_gone:
                await reply.until_closed()
            return None
        await reply.finish(status, frame, extra)
        return None

    async def _batcher(self, asked: Asked) -> Connection | None:
        """The connection, if its protocol version allows batches."""
        connection = None if asked.head.is_modern else await self._session(asked)
        return connection if connection is not None and connection.version == BATCH_VERSION else None

    async def _answer_batch(
        self, batch: list[Message | Unreadable], connection: Connection, asked: Asked
    ) -> None:
        """Handle a batch: one combined answer, or 202 if there is nothing to answer."""
        frames: list[bytes] = []
        begun: list[Id] = []
        reply, task = asked.reply, asyncio.current_task()
        if task is None:
            return
        reply.await_answer(asked.receive, task)
        self._watch.add(reply)
        try:
            async with asyncio.TaskGroup() as group:
                for one in batch:
                    if isinstance(one, Unreadable):
                        frames.append(refusal(one.id, one))
                    elif not one.method:
                        with contextlib.suppress(ProtocolError):
                            await self._answered(one, connection)
                    elif one.id is None:
                        await self._notice(one, connection)
                    elif one.id in connection.running:
                        frames.append(refusal(one.id, _under_way()))
                    else:
                        begun.append(one.id)
                        work = self._framed(one, one.id, connection, reply, frames)
                        connection.running[one.id] = group.create_task(work)
        except asyncio.CancelledError:
            if reply.is_gone:
                return
            frames.append(refusal(None, _cancelled()))  # unfinished requests of the batch
        finally:
            self._watch.discard(reply)
            reply.stop_watching()
            for message_id in begun:
                connection.running.pop(message_id, None)
        if frames:
            await reply.finish(200, joined(frames), [])
        else:
            await reply.status(202)

    async def _framed(
        self, message: Message, message_id: Id, connection: Connection, reply: Reply, frames: list[bytes]
    ) -> None:
        """Handle one request of a batch; a cancelled one has no answer."""
        try:
            frames.append(answer(message_id, await self._server.handle(message, connection, reply.emit)))
        except ProtocolError as error:
            frames.append(refusal(message_id, error))
        except Exception:
            log.exception("internal error while handling a message", extra={"method": message.method[:64]})
            frames.append(refusal(message_id, ProtocolError(INTERNAL_ERROR, "Internal error")))

    async def _handled(
        self,
        message: Message,
        message_id: Id,
        connection: Connection,
        asked: Asked,
        stream: Stream | None,
    ) -> bytes:
        """Handle a request; a disconnect cancels it, unless the client can resume its stream."""
        reply, task = asked.reply, asyncio.current_task()
        if task is None:
            raise ProtocolError(INTERNAL_ERROR, "Internal error")
        reply.await_answer(asked.receive, task)
        self._watch.add(reply)
        connection.running[message_id] = task
        if message.method == LISTEN:
            self._listening[task] = reply
        emit = reply.emit if stream is None else stream.emit
        try:
            return answer(message_id, await self._server.handle(message, connection, emit))
        except asyncio.CancelledError:
            has_stream = stream is not None and stream.has_begun
            if (reply.is_gone and not has_stream) or asyncio.get_running_loop().is_closed():
                raise
            task.uncancel()
            raise _cancelled() from None
        except ProtocolError:
            raise
        except Exception as error:
            log.exception("internal error while handling a message", extra={"method": message.method[:64]})
            raise ProtocolError(INTERNAL_ERROR, "Internal error") from error
        finally:
            self._watch.discard(reply)
            reply.stop_watching()
            connection.running.pop(message_id, None)
            self._listening.pop(task, None)

    def _modern(self, message: Message, asked: Asked) -> Connection:
        head = asked.head
        version = head.version if head.agrees(message) else check_modern(asked.headers, message)
        if message.method == "tools/call":
            self._check_params(message, asked)
        meta = message.meta
        connection = Connection.of_request(asked.agent, version, meta)
        if self._server.features.has_logging:
            connection.log_level = log_level_of(meta)
        return connection

    def _check_params(self, message: Message, asked: Asked) -> None:
        name = message.params.get("name")
        keep = self._server.keep
        tool = keep.try_get(name) if isinstance(name, str) else None
        if (
            tool is None
            or not self._wants_headers(tool)
            # A mismatch error for a hidden tool would tell the agent that the tool exists.
            or keep.look_up(tool.name, agent=asked.agent) is None
        ):
            return
        arguments: Any = message.arguments
        if isinstance(arguments, bytes):
            with contextlib.suppress(ValueError):  # argument validation reports malformed JSON
                arguments = jiter.from_json(arguments)
        check_params(asked.headers, tool.definition.parameters, arguments)

    def _wants_headers(self, tool: RegisteredTool) -> bool:
        """Whether arguments of a tool are mirrored in `Mcp-Param-…` headers."""
        known = self._has_headers.get(tool.definition_hash)
        if known is None:
            known = any(annotated(tool.definition.parameters))
            if len(self._has_headers) >= _REMEMBERED_TOOLS:
                self._has_headers.clear()
            self._has_headers[tool.definition_hash] = known
        return known

    async def _stream(self, connection: Connection, asked: Asked) -> None:
        """Serve a GET stream: messages that belong to no request, or a resumed stream."""
        reply, task = asked.reply, asyncio.current_task()
        if connection.streams is None or task is None:
            return None
        last = asked.headers.raw(LAST_EVENT_HEADER).decode("latin-1").strip()
        if last:
            found = connection.streams.find(last)
            if found is None and self._elsewhere is not None:
                return await self._stream_elsewhere(connection, asked, last, self._elsewhere)
            if found is None:
                return await reply.json(400, refusal(None, ProtocolError(INVALID_REQUEST, _NOT_KEPT)))
            stream, after = found
        else:
            stream, after = _listening(connection, connection.streams), 0
        stream.resume(reply, after)
        return await self._send_events(connection, stream, asked)

    async def _stream_elsewhere(
        self, connection: Connection, asked: Asked, last: str, elsewhere: "Elsewhere"
    ) -> None:
        """Serve a stream that another server has begun."""
        reply, task = asked.reply, asyncio.current_task()
        replayed = await elsewhere.replay(connection, last)
        if replayed is None or connection.streams is None or task is None:
            return await reply.json(400, refusal(None, ProtocolError(INVALID_REQUEST, _NOT_KEPT)))
        reply.open()
        for event in replayed.events:
            reply.emit(event.frame, name=event.name)
        if replayed.head.request is None:
            stream = _listening(connection, connection.streams)
            stream.attach(reply)
            return await self._send_events(connection, stream, asked)
        reply.watch(asked.receive, task)
        self._listening[task] = reply
        try:
            if not replayed.is_over:
                await elsewhere.follow(replayed, reply)
            reply.end()
            await reply.until_closed()
        except asyncio.CancelledError:
            if not reply.is_gone:  # shutdown: the client resumes on another server
                reply.stop_watching()
                reply.end()
                await reply.until_closed()
        finally:
            self._listening.pop(task, None)
            reply.stop_watching()

    async def _send_events(self, connection: Connection, stream: Stream, asked: Asked) -> None:
        """Send what comes to a stream until its client leaves."""
        reply, task = asked.reply, asyncio.current_task()
        if task is None:
            return
        stream.prime()
        reply.watch(asked.receive, task)
        self._listening[task] = reply
        try:
            if self._elsewhere is not None and connection.watched:
                await self._server.hub.hold_watched(connection)
            await reply.until_closed()
        except asyncio.CancelledError:
            if not reply.is_gone:  # shutdown, or its token was revoked: end the stream properly
                # At its end the server tells of a disconnect, which would cancel what waits for the end.
                reply.stop_watching()
                reply.end()
                await reply.until_closed()
        finally:
            self._listening.pop(task, None)
            reply.stop_watching()
            stream.detach(reply)


def _listening(connection: Connection, streams: Streams) -> Stream:
    """The stream of messages that belong to no request; a newer one replaces it."""

    def abandon() -> None:
        stream.end()
        if connection.emit == stream.emit:
            connection.emit = None

    stream = streams.begin(abandon)
    connection.emit = stream.emit
    return stream


_AWAY: Final = "The shared database is away; try again"
_NOT_KEPT: Final = "What came after that event is not kept here; begin again"


def _resumable(connection: Connection, reply: Reply, request: Id) -> Stream | None:
    """The stream of one request, if its answer becomes one; the client may resume it."""
    task = asyncio.current_task()
    if connection.streams is None or task is None:
        return None
    stream = connection.streams.begin(task.cancel, request)
    stream.attach(reply)

    def goes_on() -> bool:
        stream.detach(reply)
        return stream.has_begun

    reply.goes_on = goes_on
    reply.prime = stream.prime
    return stream


def _cancelled() -> ProtocolError:
    return ProtocolError(OVERLOADED, "The request was cancelled")


def _under_way() -> ProtocolError:
    return ProtocolError(INVALID_REQUEST, "A request of this id is under way")


async def read_body(receive: Receive, headers: Headers, limit: int) -> bytes:
    """Read the whole body of a request; raises `TooLong` or `Gone`."""
    length = headers.raw(b"content-length")
    # Refused by its declared length before anything is read. The length may lie or be missing: the sum below
    # is what holds.
    if length.isdigit() and int(length[:20]) > limit:
        raise TooLong
    event = await receive()
    if not event.get("more_body", False) and event["type"] == "http.request":
        body: bytes = event.get("body", b"")
        if len(body) > limit:
            raise TooLong
        return body
    parts, held = [], 0
    while True:
        if event["type"] != "http.request":
            raise Gone
        parts.append(event.get("body", b""))
        held += len(parts[-1])
        if held > limit:
            raise TooLong
        if not event.get("more_body", False):
            return b"".join(parts)
        event = await receive()
