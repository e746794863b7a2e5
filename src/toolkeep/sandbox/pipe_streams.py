"""Host ends of a worker's pipes and a program's standard streams: bytes in, lines out.

Back-pressure: nothing is read while the buffer holds as much as a line may have. A program that writes
without end blocks, and costs the host nothing. Belongs to one event loop; can be discarded without one.
"""

import asyncio
import os
from typing import Final

_CHUNK_BYTES: Final = 1 << 18
"""Bytes read or written at once: above the default capacity of a pipe (64 KiB), so one call drains or fills
it."""

_PIPE_BYTES: Final = 1 << 20
"""Largest capacity of a pipe that an unprivileged program can set (/proc/sys/fs/pipe-max-size)."""


class LineTooLong(Exception):
    """A line exceeds the limit."""


class LineReader:
    """Output of a program, line by line."""

    def __init__(self, descriptor: int, most_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._most = most_bytes
        self._buffer = bytearray()
        self._looked = 0
        """Offset up to which there is no newline: a long line is not searched again from its start."""
        self._is_ended = False
        self._waiting: asyncio.Future[None] | None = None
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._on_readable)

    async def next(self) -> bytes:
        """The next line without its newline; EOFError at the end, LineTooLong beyond the limit."""
        while (end := self._buffer.find(b"\n", self._looked)) < 0:
            self._looked = len(self._buffer)
            if self._looked > self._most:
                raise LineTooLong
            if self._is_ended:
                raise EOFError
            self._waiting = self._loop.create_future()
            await self._waiting
        if end > self._most:
            raise LineTooLong
        line = bytes(memoryview(self._buffer)[:end])
        del self._buffer[: end + 1]
        self._looked = 0
        if not self._is_ended:
            self._loop.add_reader(self._descriptor, self._on_readable)
        return line

    def close(self) -> None:
        """Stop reading."""
        self._is_ended = True
        self._loop.remove_reader(self._descriptor)
        self._wake()

    def _on_readable(self) -> None:
        try:
            more = os.read(self._descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        self._buffer += more
        self._is_ended = not more
        if self._is_ended or len(self._buffer) > self._most:
            self._loop.remove_reader(self._descriptor)
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class TailReader:
    """Tail of what a program writes, read slowly: a program that floods it blocks most of the time."""

    def __init__(self, descriptor: int, most_bytes: int, pause_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._most = most_bytes
        self._pause_s = pause_s
        self._kept = b""
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._on_readable)

    def text(self) -> str:
        """What was written last, with what waits in the pipe: the end says why a program ended."""
        # Bounded: another process of a dead program may go on writing.
        left = _PIPE_BYTES
        while left > 0 and (more := self._read()):
            left -= len(more)
        return self._kept.decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Stop reading, after a last look."""
        self._read()
        self._is_closed = True
        self._loop.remove_reader(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()

    def _on_readable(self) -> None:
        self._loop.remove_reader(self._descriptor)
        if self._read():
            self._timer = self._loop.call_later(self._pause_s, self._go_on)

    def _read(self) -> bytes:
        """Read what is there; nothing at the end, nor once closed: the descriptor may be another's then."""
        try:
            more = b"" if self._is_closed else os.read(self._descriptor, _CHUNK_BYTES)
        except OSError:
            more = b""
        self._kept = (self._kept + more)[-self._most :]
        return more

    def _go_on(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._descriptor, self._on_readable)


class PipeWriter:
    """Sends data to a worker as fast as it reads; what a dead worker does not read is dropped."""

    def __init__(self, descriptor: int, data: bytes) -> None:
        """`descriptor` is non-blocking already."""
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._unsent = memoryview(data)

    def send(self) -> None:
        """Start or continue sending."""
        try:
            self._unsent = self._unsent[os.write(self._descriptor, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = self._unsent[:0]  # It is dead; what it wrote before is still to be read.
        if self._unsent:
            self._loop.add_writer(self._descriptor, self.send)
        else:
            self.close()

    def close(self) -> None:
        """Stop sending."""
        self._loop.remove_writer(self._descriptor)


class StdinWriter:
    """Standard input of a program. Data goes out whole, even if the sender was cancelled.

    Half a line would corrupt the next request.
    """

    def __init__(self, descriptor: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._unsent = bytearray()
        self._is_closed = False
        self._waiting: list[asyncio.Future[None]] = []
        os.set_blocking(descriptor, False)

    @property
    def waiting_bytes(self) -> int:
        """Bytes that the program has not read yet."""
        return len(self._unsent)

    async def send(self, data: bytes) -> None:
        """Write bytes and wait until the program has read them; ConnectionError if it never will."""
        self._unsent += data
        self._flush()
        if self._unsent and not self._is_closed:
            taken: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(taken)
            await taken
        if self._is_closed:
            raise ConnectionError

    def close(self) -> None:
        """Stop sending."""
        self._is_closed = True
        self._loop.remove_writer(self._descriptor)
        self._wake()

    def _flush(self) -> None:
        try:
            while self._unsent and not self._is_closed:
                del self._unsent[: os.write(self._descriptor, memoryview(self._unsent)[:_CHUNK_BYTES])]
        except BlockingIOError:
            self._loop.add_writer(self._descriptor, self._flush)
            return
        except OSError:
            self.close()
            return
        self._loop.remove_writer(self._descriptor)
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for taken in waiting:
            if not taken.done():
                taken.set_result(None)
