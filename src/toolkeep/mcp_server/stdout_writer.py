"""Writers for stdout: a pipe, a file, or a socket that is stdin as well."""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Callable
from typing import IO, Generic, Literal, TypeVar, cast

from toolkeep.limits import MCP_UNREAD_BYTES
from toolkeep.mcp_protocol.jsonrpc import is_notification

Taker = TypeVar("Taker", bound=asyncio.Protocol)


class PipeWriter:
    """Writes lines to a pipe, all of one loop iteration at once."""

    def __init__(self, transport: asyncio.WriteTransport, protocol: "_Flow") -> None:
        self._transport = transport
        self._protocol = protocol
        self._waiting: list[bytes] = []
        self._held = 0

    def write(self, frame: bytes) -> None:
        """Queue one message for the end of this iteration; drops notifications if too much is queued."""
        if (self._held > MCP_UNREAD_BYTES or self.is_full) and is_notification(frame):
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting += (frame, b"\n")
        self._held += len(frame)

    def _flush(self) -> None:
        data, self._waiting, self._held = b"".join(self._waiting), [], 0
        if data and not self._transport.is_closing():
            self._transport.write(data)

    @property
    def is_full(self) -> bool:
        """Whether the client is not reading, or is gone."""
        return not self._protocol.is_free

    async def drain(self) -> None:
        """Wait until the client reads again."""
        await self._protocol.drained()

    async def close(self) -> None:
        """Send what is queued, then close."""
        self._flush()
        with contextlib.suppress(TimeoutError, ConnectionError):
            await asyncio.wait_for(self._protocol.drained(), 1)
        self._transport.close()


class _Flow(asyncio.Protocol):
    """Flow control of a pipe."""

    def __init__(self) -> None:
        self._free = asyncio.Event()
        self._free.set()
        self._is_lost = False

    @property
    def is_free(self) -> bool:
        return self._free.is_set() and not self._is_lost

    def pause_writing(self) -> None:
        self._free.clear()

    def resume_writing(self) -> None:
        self._free.set()

    def connection_lost(self, _: Exception | None) -> None:
        self._is_lost = True
        self._free.set()

    async def drained(self) -> None:
        await self._free.wait()
        if self._is_lost:
            raise BrokenPipeError


class FileWriter:
    """Writes lines to a file, which never blocks."""

    def __init__(self, sink: IO[bytes]) -> None:
        self._sink = sink

    def write(self, frame: bytes) -> None:
        """Write one message."""
        self._sink.write(frame + b"\n")
        self._sink.flush()

    is_full = False

    async def drain(self) -> None:
        """Do nothing: files need no flow control."""

    async def close(self) -> None:
        """Do nothing."""


class Both(_Flow, Generic[Taker]):
    """One transport for a socket that is stdin and stdout at once.

    Two pipe transports would both watch it, and the writing one would take input for end of file.
    """

    def __init__(self, attend: Callable[["PipeWriter"], Taker]) -> None:
        super().__init__()
        self._attend = attend
        self.intake: Taker

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        both = cast("asyncio.Transport", transport)  # uvloop's are none by their class
        both.set_write_buffer_limits(high=MCP_UNREAD_BYTES)
        self.intake = self._attend(PipeWriter(both, self))
        self.intake.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Handle input: complete lines or a part of one."""
        self.intake.data_received(data)

    def eof_received(self) -> bool:
        """The client sends no more; it may still wait for answers."""
        self.intake.eof_received()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """The client has disconnected."""
        super().connection_lost(error)
        self.intake.connection_lost(error)


def is_one_socket(source: IO[bytes], sink: IO[bytes]) -> bool:
    """Whether stdin and stdout are the same socket, as under `socat` and `inetd`."""
    read, written = os.fstat(source.fileno()), os.fstat(sink.fileno())
    return stat.S_ISSOCK(read.st_mode) and (read.st_dev, read.st_ino) == (written.st_dev, written.st_ino)


async def open_socket(stream: IO[bytes], attend: Callable[[PipeWriter], Taker]) -> Taker:
    """Connect a socket; `attend` makes the reader from its writer."""
    loop = asyncio.get_running_loop()
    opened = socket.socket(fileno=os.dup(stream.fileno()))
    opened.settimeout(0)
    connect = loop.create_unix_connection if opened.family == socket.AF_UNIX else loop.create_connection
    _, both = await connect(lambda: Both(attend), sock=opened)
    return both.intake


async def open_writer(sink: IO[bytes]) -> PipeWriter | FileWriter:
    """Make the writer for a pipe or a file."""
    if not is_pipe(sink):
        return FileWriter(sink)
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(_Flow, handed_over(sink, "wb"))
    transport.set_write_buffer_limits(high=MCP_UNREAD_BYTES)
    return PipeWriter(transport, protocol)


def handed_over(stream: IO[bytes], mode: Literal["rb", "wb"]) -> IO[bytes]:
    """Duplicate the descriptor of a stream, for a transport to close exactly once.

    libuv closes it by itself. A file object that closes it again may close a descriptor that another thread
    opened meanwhile under the same number: the lock of the audit log, in one of four runs.
    """
    is_libuv = type(asyncio.get_running_loop()).__module__.startswith("uvloop")
    return os.fdopen(os.dup(stream.fileno()), mode, 0, closefd=not is_libuv)


def is_pipe(stream: IO[bytes]) -> bool:
    """Whether reading and writing may block."""
    mode = os.fstat(stream.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
