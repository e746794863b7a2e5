"""MCP over streamable HTTP, as an ASGI app: one answer a request, as JSON, or as a stream once there is more.

Whoever mounts it says who calls: `identify` gives the agent of a request, by default that of the server. By
itself it speaks to this machine only. A client that closes the response cancels what it asked for.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

import jiter

from toolkeep.calls import RegisteredTool
from toolkeep.mcp.connection import Connection
from toolkeep.mcp.headers import (
    LOOPBACK,
    SESSION_HEADER,
    VERSION_HEADER,
    Headers,
    SpokenTo,
    check_modern,
    check_params,
)
from toolkeep.mcp.server import McpServer, log_level_of
from toolkeep.mcp.sessions import Sessions
from toolkeep.mcp.stream import Reply
from toolkeep.wire.era import HANDSHAKE_VERSIONS, http_status
from toolkeep.wire.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    OVERLOADED,
    Message,
    ProtocolError,
    Unreadable,
    answer,
    read_message,
    refusal,
)
from toolkeep.wire.mirrored import annotated

log = logging.getLogger("toolkeep.mcp")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Identify = Callable[[Scope], str | None]
"""Whose request it is; None for nobody's."""

_WATCH_AFTER_S: Final = 0.05
"""Most calls are over by then; for the others somebody looks whether the client is still there."""

_REMEMBERED_TOOLS: Final = 10_000


class TooLong(Exception):
    """A body beyond the limit."""


class Gone(Exception):
    """The client closed before it had sent everything."""


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
        """`hosts` are the names by which it is spoken to; `path` is the only one it serves, if given."""
        self._server = server
        self._is_spoken_to = SpokenTo(hosts)
        self._identify = identify or (lambda _: server.agent)
        self._path = path
        self._sessions = Sessions(server.hub)
        self._has_headers: dict[str, bool] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the life of the server around all of them."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._request(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            if event["type"] == "lifespan.shutdown":
                self.close()
            await send({"type": event["type"] + ".complete"})
            if event["type"] == "lifespan.shutdown":
                return

    def close(self) -> None:
        """End every session and what waits."""
        self._sessions.close()
        self._server.close()

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope["headers"])
        reply = Reply(send)
        if not self._is_spoken_to(headers):
            return await reply.status(403)
        if self._path is not None and scope["path"] != self._path:
            return await reply.status(404)
        agent = self._identify(scope)
        if agent is None:
            return await reply.status(401)
        self._server.hub.attend()
        match scope["method"]:
            case "POST":
                await self._post(agent, headers, receive, reply)
            case "GET" if self._sessions.find(headers.raw(SESSION_HEADER), agent) is not None:
                await self._stream(agent, headers, receive, reply)
            case "DELETE" if self._sessions.end(headers.raw(SESSION_HEADER), agent):
                await reply.status(204)
            case "GET" | "DELETE" if headers.raw(SESSION_HEADER):
                await reply.status(404)
            case _:
                await reply.status(405, [(b"allow", b"POST")])
        return None

    async def _post(self, agent: str, headers: Headers, receive: Receive, reply: Reply) -> None:
        if headers.raw(b"content-type").partition(b";")[0].strip().lower() != b"application/json":
            return await reply.status(415)
        is_modern = _is_modern(headers)
        try:
            message = read_message(await read_body(receive, headers, self._server.limits.message_bytes))
        except TooLong:
            return await reply.status(413, [(b"connection", b"close")])
        except Gone:
            return None
        except Unreadable as error:
            return await reply.json(400, refusal(error.id, error))
        if message.method and message.id is not None:
            return await self._answer(message, agent, headers, receive, reply, is_modern=is_modern)
        return await self._take(message, agent, headers, reply, is_modern=is_modern)

    async def _take(
        self, message: Message, agent: str, headers: Headers, reply: Reply, *, is_modern: bool
    ) -> None:
        """A notification, or the answer to a request of ours; neither is answered."""
        if is_modern:
            # There are none in this era, and none may touch what another client does.
            error = ProtocolError(INVALID_REQUEST, "There is nothing to answer")
            return await reply.status(202) if message.method else await reply.json(400, refusal(None, error))
        connection = self._sessions.find(headers.raw(SESSION_HEADER), agent)
        if connection is None:
            return await reply.status(404 if headers.raw(SESSION_HEADER) else 400)
        if not message.method:
            return await reply.status(202 if connection.answered(message) else 400)
        self._server.notice(message, connection)
        return await reply.status(202)

    async def _answer(
        self,
        message: Message,
        agent: str,
        headers: Headers,
        receive: Receive,
        reply: Reply,
        *,
        is_modern: bool,
    ) -> None:
        """A request."""
        if message.id is None:
            return None
        extra: list[tuple[bytes, bytes]] = []
        try:
            if is_modern:
                connection = self._modern(message, agent, headers)
            else:
                found = self._handshaken(message, agent, headers)
                if found is None:
                    return await reply.status(404 if headers.raw(SESSION_HEADER) else 400)
                connection = found
                _check_new(message, connection)
            frame = await self._handled(message, connection, receive, reply)
            if message.method == "initialize":
                extra = [(SESSION_HEADER, self._sessions.add(connection).encode())]
            status = 200
        except ProtocolError as error:
            frame = refusal(message.id, error)
            status = 429 if error.code == OVERLOADED else http_status(error, is_modern=is_modern)
        except asyncio.CancelledError:
            if not reply.is_gone:
                raise
            return None
        await reply.finish(status, frame, extra)
        return None

    async def _handled(
        self, message: Message, connection: Connection, receive: Receive, reply: Reply
    ) -> bytes:
        """The answer; whoever goes away meanwhile cancels it."""
        task = asyncio.current_task()
        if message.id is None or task is None:
            raise ProtocolError(INTERNAL_ERROR, "Internal error")
        loop = asyncio.get_running_loop()
        watch = loop.call_later(_WATCH_AFTER_S, reply.watch, receive, task)
        connection.running[message.id] = task
        try:
            return answer(message.id, await self._server.handle(message, connection, reply.emit))
        except asyncio.CancelledError:
            if reply.is_gone or loop.is_closed():
                raise
            task.uncancel()
            raise ProtocolError(OVERLOADED, "The request was cancelled") from None
        except ProtocolError:
            raise
        except Exception as error:
            log.exception("a message broke the server", extra={"method": message.method[:64]})
            raise ProtocolError(INTERNAL_ERROR, "Internal error") from error
        finally:
            watch.cancel()
            reply.stop_watching()
            connection.running.pop(message.id, None)

    def _modern(self, message: Message, agent: str, headers: Headers) -> Connection:
        version = check_modern(headers, message)
        if message.method == "tools/call":
            self._check_params(message, agent, headers)
        connection = Connection.of_request(agent, version, message.meta)
        connection.log_level = log_level_of(message.meta) if self._server.features.has_logging else ""
        return connection

    def _check_params(self, message: Message, agent: str, headers: Headers) -> None:
        name = message.params.get("name")
        tool = self._server.keep.look_up(name, agent=agent) if isinstance(name, str) else None
        if tool is None or not (headers.has_params or self._wants_headers(tool)):
            return
        arguments: Any = message.arguments
        if isinstance(arguments, bytes):
            with contextlib.suppress(ValueError):  # the door says what is wrong with them
                arguments = jiter.from_json(arguments)
        check_params(headers, tool.definition.parameters, arguments)

    def _wants_headers(self, tool: RegisteredTool) -> bool:
        """Whether arguments of a tool are repeated in headers."""
        known = self._has_headers.get(tool.definition_hash)
        if known is None:
            known = any(annotated(tool.definition.parameters))
            if len(self._has_headers) >= _REMEMBERED_TOOLS:
                self._has_headers.clear()
            self._has_headers[tool.definition_hash] = known
        return known

    def _handshaken(self, message: Message, agent: str, headers: Headers) -> Connection | None:
        if message.method == "initialize":
            return Connection(agent)
        return self._sessions.find(headers.raw(SESSION_HEADER), agent)

    async def _stream(self, agent: str, headers: Headers, receive: Receive, reply: Reply) -> None:
        """What belongs to no request, for as long as the client listens."""
        connection = self._sessions.find(headers.raw(SESSION_HEADER), agent)
        task = asyncio.current_task()
        if connection is None or task is None:
            return
        reply.open()
        connection.emit = mine = reply.emit
        reply.watch(receive, task)
        try:
            await reply.until_closed()
        except asyncio.CancelledError:
            if not reply.is_gone:
                raise
        finally:
            reply.stop_watching()
            if connection.emit is mine:
                connection.emit = None


def _check_new(message: Message, connection: Connection) -> None:
    if message.id in connection.running:
        raise ProtocolError(INVALID_REQUEST, "A request of this id is under way")


def _is_modern(headers: Headers) -> bool:
    """Whether a request is of the newer era; one that names no version is not."""
    version = headers.raw(VERSION_HEADER).decode("latin-1").strip()
    return version != "" and version not in HANDSHAKE_VERSIONS


async def read_body(receive: Receive, headers: Headers, limit: int) -> bytes:
    """The whole body of a request; raises `TooLong` or `Gone`."""
    length = headers.raw(b"content-length")
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
