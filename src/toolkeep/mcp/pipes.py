"""Where answers over standard output go: a pipe, a file, or a socket that is standard input too."""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Callable
from typing import IO, Generic, Literal, TypeVar, cast

from toolkeep.limits import MCP_UNREAD_BYTES
from toolkeep.wire.messages import is_notification

Taker = TypeVar("Taker", bound=asyncio.Protocol)


class PipeWriter:
    """Writes lines to a pipe, all of one turn of the loop at once."""

    def __init__(self, transport: asyncio.WriteTransport, protocol: "_Flow") -> None:
        self._transport = transport
        self._protocol = protocol
        self._waiting: list[bytes] = []
        self._held = 0

    def write(self, frame: bytes) -> None:
        """One message; it goes out at the end of this turn. Where too much waits, notifications do not."""
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
        """Whether the client does not read, now or for ever."""
        return not self._protocol.is_free

    async def drain(self) -> None:
        """Wait while the client does not read."""
        await self._protocol.drained()

    async def close(self) -> None:
        """Send what waits."""
        self._flush()
        with contextlib.suppress(TimeoutError, ConnectionError):
            await asyncio.wait_for(self._protocol.drained(), 1)
        self._transport.close()


class _Flow(asyncio.Protocol):
    """Whether a pipe takes more."""

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
    """Writes lines to a file, which never waits."""

    def __init__(self, sink: IO[bytes]) -> None:
        self._sink = sink

    def write(self, frame: bytes) -> None:
        """One message."""
        self._sink.write(frame + b"\n")
        self._sink.flush()

    is_full = False

    async def drain(self) -> None:
        """Nothing waits."""

    async def close(self) -> None:
        """Nothing waits."""


class Both(_Flow, Generic[Taker]):
    """A socket that is standard input and output at once: both ends of one transport.

    Pipe transports would each watch it, and the one that writes takes what comes in for the end.
    """

    def __init__(self, attend: Callable[["PipeWriter"], Taker]) -> None:
        super().__init__()
        self._attend = attend
        self.intake: Taker

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        both = cast("asyncio.Transport", transport)  # uvloop's are none by their class
        both.set_write_buffer_limits(high=MCP_UNREAD_BYTES)
        self.intake = self._attend(PipeWriter(both, self))
        self.intake.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Some lines, or a part of one."""
        self.intake.data_received(data)

    def eof_received(self) -> bool:
        """The client says no more; it may still wait for answers."""
        self.intake.eof_received()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """The client is gone."""
        super().connection_lost(error)
        self.intake.connection_lost(error)


def is_one_socket(source: IO[bytes], sink: IO[bytes]) -> bool:
    """Whether what is read and what is written is the same socket, as `socat` and `inetd` give it."""
    read, written = os.fstat(source.fileno()), os.fstat(sink.fileno())
    return stat.S_ISSOCK(read.st_mode) and (read.st_dev, read.st_ino) == (written.st_dev, written.st_ino)


async def open_socket(stream: IO[bytes], attend: Callable[[PipeWriter], Taker]) -> Taker:
    """Who takes what comes from a socket, made from where its answers go."""
    loop = asyncio.get_running_loop()
    opened = socket.socket(fileno=os.dup(stream.fileno()))
    opened.settimeout(0)
    connect = loop.create_unix_connection if opened.family == socket.AF_UNIX else loop.create_connection
    _, both = await connect(lambda: Both(attend), sock=opened)
    return both.intake


async def open_writer(sink: IO[bytes]) -> PipeWriter | FileWriter:
    """Who writes to a pipe or a file."""
    if not is_pipe(sink):
        return FileWriter(sink)
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(_Flow, handed_over(sink, "wb"))
    transport.set_write_buffer_limits(high=MCP_UNREAD_BYTES)
    return PipeWriter(transport, protocol)


def handed_over(stream: IO[bytes], mode: Literal["rb", "wb"]) -> IO[bytes]:
    """Another descriptor of a stream, for a transport to close, once.

    libuv closes it by itself. A file that closes it too closes whatever a thread opened meanwhile under the
    same number: the lock of the log, in one of four runs of the command.
    """
    is_libuv = type(asyncio.get_running_loop()).__module__.startswith("uvloop")
    return os.fdopen(os.dup(stream.fileno()), mode, 0, closefd=not is_libuv)


def is_pipe(stream: IO[bytes]) -> bool:
    """Whether one waits for what comes, or until it goes out."""
    mode = os.fstat(stream.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
