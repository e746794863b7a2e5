"""MCP over stdio: one message per line, one client for the life of the process.

Imports only what the first answer needs. An unreadable line is answered with an error and skipped. A client
that does not read its answers is not read from either (backpressure).
"""

import asyncio
import logging
import os
import secrets
import sys
from typing import IO, Final, cast

from toolkeep.mcp_protocol.batch import BATCH_VERSION, is_batch, joined, read_batch
from toolkeep.mcp_protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Id,
    Message,
    ProtocolError,
    Unreadable,
    answer,
    read_message,
    refusal,
)
from toolkeep.mcp_protocol.versions import LISTEN, check_envelope, is_modern_request
from toolkeep.mcp_server.connection import Connection, Emit
from toolkeep.mcp_server.dispatch import McpServer, log_level_of
from toolkeep.mcp_server.stdout_writer import (
    FileWriter,
    PipeWriter,
    handed_over,
    is_one_socket,
    is_pipe,
    open_socket,
    open_writer,
)
from toolkeep.storage.sqlite.process_identity import process_identity

log = logging.getLogger("toolkeep.mcp")

_CHUNK: Final = 1 << 18


class Lines:
    """Splits the input into lines; a line beyond the limit is dropped while it arrives."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._held = 0
        self._is_dropping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """Return the complete lines; None for one that was too long."""
        *ended, rest = data.split(b"\n")
        lines: list[bytes | None] = []
        for end in ended:
            whole = b"".join((*self._parts, end)) if self._parts else end
            is_long = self._is_dropping or len(whole) > self._limit
            lines.append(None if is_long else whole)
            self._parts, self._held, self._is_dropping = [], 0, False
        self._hold(rest)
        return lines

    def _hold(self, rest: bytes) -> None:
        if not rest or self._is_dropping:
            return
        self._parts.append(rest)
        self._held += len(rest)
        if self._held > self._limit:
            # Dropped at once: a client that never sends a newline would otherwise fill the memory.
            self._parts, self._held, self._is_dropping = [], 0, True


class _Answers:
    """Collects the answers to a batch and sends them together."""

    def __init__(self, emit: Emit, missing: int) -> None:
        self._emit = emit
        self._missing = missing
        self._frames: list[bytes] = []

    def give(self, frame: bytes) -> None:
        """Add an answer; empty for a request that has none."""
        self._missing -= 1
        if frame:
            self._frames.append(frame)
        if not self._missing and self._frames:
            self._emit(joined(self._frames))


def _is_answered(one: Message | Unreadable) -> bool:
    return isinstance(one, Unreadable) or (one.method != "" and one.id is not None)


class StdioServer:
    """Handles the messages of one client concurrently."""

    def __init__(self, server: McpServer, emit: Emit) -> None:
        self._server = server
        self._emit = emit
        self._listening: set[Id] = set()
        self.session = secrets.token_hex(16)
        self.connection = Connection(
            server.agent, session=self.session, caller=f"stdio {process_identity(os.getppid())}"
        )
        self.connection.emit = emit
        server.hub.attend()
        server.hub.connections.add(self.connection)

    def close(self) -> None:
        """The client has disconnected."""
        self._server.hub.leave(self.connection)
        self.connection.close()

    @property
    def is_busy(self) -> bool:
        """Whether the limit of concurrent requests is reached."""
        return len(self.connection.running) - len(self._listening) >= self._server.limits.in_flight

    @property
    def work(self) -> "list[asyncio.Task[None]]":
        """Running requests, except subscriptions, which last until the client disconnects."""
        return [task for number, task in self.connection.running.items() if number not in self._listening]

    def take(self, line: bytes | None) -> None:
        """Handle one line."""
        if line is None:
            self._refuse(None, ProtocolError(INVALID_REQUEST, "The message is too long"))
            return
        if not line.strip():
            return
        try:
            if self.connection.version == BATCH_VERSION and is_batch(line):
                self._take_batch(read_batch(line))
                return
            message = read_message(line)
        except Unreadable as error:
            self._refuse(error.id, error)
            return
        self._take_message(message, self._give)

    def _take_batch(self, batch: list[Message | Unreadable]) -> None:
        answers = _Answers(self._emit, sum(map(_is_answered, batch)))
        for one in batch:
            if isinstance(one, Unreadable):
                answers.give(refusal(one.id, one))
            else:
                self._take_message(one, answers.give)

    def _take_message(self, message: Message, give: Emit) -> None:
        if not message.method:
            self.connection.answered(message)
        elif message.id is None:
            self._server.notice(message, self.connection)
        elif message.id in self.connection.running:
            error = ProtocolError(INVALID_REQUEST, "A request of this id is under way")
            give(refusal(message.id, error))
        else:
            if message.method == LISTEN:
                self._listening.add(message.id)
            task = asyncio.get_running_loop().create_task(self._answer(message, give))
            if not task.done():  # an eager task may have finished already
                self.connection.running[message.id] = task

    async def _answer(self, message: Message, give: Emit) -> None:
        if message.id is None:
            return
        frame = b""  # a cancelled request is not answered
        try:
            connection = self._connection_of(message)
            frame = answer(message.id, await self._server.handle(message, connection, self._emit))
        except ProtocolError as error:
            frame = refusal(message.id, error)
        except Exception:
            log.exception("internal error while handling a message", extra={"method": message.method[:64]})
            frame = refusal(message.id, ProtocolError(INTERNAL_ERROR, "Internal error"))
        finally:
            self.connection.running.pop(message.id, None)
            self._listening.discard(message.id)
            give(frame)

    def _connection_of(self, message: Message) -> Connection:
        meta = message.meta
        if self.connection.version or not (is_modern_request(meta) or message.method == "server/discover"):
            return self.connection
        version = check_envelope(message.params.get("_meta"))
        connection = Connection.of_request(self._server.agent, version, meta, session=self.session)
        connection.log_level = log_level_of(meta) if self._server.features.has_logging else ""
        return connection

    def _give(self, frame: bytes) -> None:
        if frame:
            self._emit(frame)

    def _refuse(self, message_id: int | str | None, error: ProtocolError) -> None:
        self._emit(refusal(message_id, error))


async def serve_stdio(
    server: McpServer, source: IO[bytes] | None = None, sink: IO[bytes] | None = None
) -> None:
    """Serve one client until it closes its end."""
    source, sink = source or sys.stdin.buffer, sink or sys.stdout.buffer
    intake = await _open(server, source, sink)
    try:
        await intake.take_all(source)
        if work := intake.speaker.work:  # requests received before the end are still answered
            await asyncio.wait(work, timeout=server.limits.grace_s)
    except (BrokenPipeError, ConnectionError):
        pass
    finally:
        intake.speaker.close()
        await intake.writer.close()


async def _open(server: McpServer, source: IO[bytes], sink: IO[bytes]) -> "MessageReader":
    def attend(writer: PipeWriter | FileWriter) -> MessageReader:
        return MessageReader(StdioServer(server, writer.write), Lines(server.limits.message_bytes), writer)

    if is_one_socket(source, sink):
        return await open_socket(source, attend)
    return attend(await open_writer(sink))


async def _read(descriptor: int) -> bytes:
    """Read from a file or terminal. A terminal is polled: a thread blocked on it could not be cancelled."""
    if not os.isatty(descriptor):
        return await asyncio.to_thread(os.read, descriptor, _CHUNK)
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    loop.add_reader(descriptor, typed.set)
    try:
        await typed.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, _CHUNK)


class MessageReader(asyncio.Protocol):
    """Passes each line on in the loop iteration in which it arrives, and pauses reading at the limits."""

    def __init__(self, speaker: StdioServer, lines: Lines, writer: PipeWriter | FileWriter) -> None:
        self.speaker = speaker
        self.writer = writer
        self._lines = lines
        self._transport: asyncio.ReadTransport | None = None
        self._room: asyncio.Task[None] | None = None
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def take_all(self, source: IO[bytes]) -> None:
        """Read until the client closes its end; raises if the client stops reading."""
        if self._transport is not None:  # a socket: its transport stays open for the answers
            await self._ended()
            return
        if not is_pipe(source):
            while data := await _read(source.fileno()):
                self._take(data)
                await self._wait_for_room()
            return
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: self, handed_over(source, "rb"))
        try:
            await self._ended()
        finally:
            transport.close()

    async def _ended(self) -> None:
        try:
            await self._end
        finally:
            if self._room is not None:
                self._room.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The pipe is open."""
        self._transport = cast("asyncio.ReadTransport", transport)  # uvloop's are none by their class

    def data_received(self, data: bytes) -> None:
        """Handle input: complete lines or a part of one."""
        self._take(data)
        if self._transport is not None and (self.speaker.is_busy or self.writer.is_full):
            self._transport.pause_reading()
            self._room = asyncio.ensure_future(self._go_on_later(self._transport))

    def eof_received(self) -> None:
        """The client closed its end."""
        self._finish(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The pipe is closed."""
        self._finish(exc)

    def _take(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            self.speaker.take(line)

    async def _wait_for_room(self) -> None:
        while self.speaker.is_busy:
            await asyncio.wait(self.speaker.work, return_when=asyncio.FIRST_COMPLETED)
        await self.writer.drain()

    async def _go_on_later(self, transport: asyncio.ReadTransport) -> None:
        try:
            await self._wait_for_room()
        except ConnectionError as error:
            self._finish(error)
        else:
            transport.resume_reading()

    def _finish(self, error: Exception | None) -> None:
        if self._end.done():
            return
        if error is None:
            self._end.set_result(None)
        else:
            self._end.set_exception(error)
