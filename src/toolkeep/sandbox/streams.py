"""The host's ends of a worker's pipes and a program's standard streams: bytes into it, lines out of it.

Nothing is read while what was read already is as long as a line may be, so that a program that writes without
end waits, and costs its host nothing. Belongs to one event loop, and can be let go of without one.
"""

import asyncio
import os
from typing import Final

_CHUNK_BYTES: Final = 1 << 18


class LineTooLong(Exception):
    """A line is longer than allowed."""


class Lines:
    """What a program writes, line by line."""

    def __init__(self, descriptor: int, most_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._most = most_bytes
        self._heard = bytearray()
        self._looked = 0
        """How far it is known that there is no end of a line."""
        self._is_ended = False
        self._waiting: asyncio.Future[None] | None = None
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._hear)

    async def next(self) -> bytes:
        """The next line without its end; EOFError where there is none, LineTooLong where it has no end."""
        while (end := self._heard.find(b"\n", self._looked)) < 0:
            self._looked = len(self._heard)
            if self._looked > self._most:
                raise LineTooLong
            if self._is_ended:
                raise EOFError
            self._waiting = self._loop.create_future()
            await self._waiting
        if end > self._most:
            raise LineTooLong
        line = bytes(memoryview(self._heard)[:end])
        del self._heard[: end + 1]
        self._looked = 0
        if not self._is_ended:
            self._loop.add_reader(self._descriptor, self._hear)
        return line

    def close(self) -> None:
        """Hear nothing more."""
        self._is_ended = True
        self._loop.remove_reader(self._descriptor)
        self._wake()

    def _hear(self) -> None:
        try:
            more = os.read(self._descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        self._heard += more
        self._is_ended = not more
        if self._is_ended or len(self._heard) > self._most:
            self._loop.remove_reader(self._descriptor)
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Tail:
    """The end of what a program writes, taken in slowly: who floods it waits most of the time."""

    def __init__(self, descriptor: int, most_bytes: int, pause_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._most = most_bytes
        self._pause_s = pause_s
        self._kept = b""
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._hear)

    @property
    def text(self) -> str:
        """What was written last."""
        return self._kept.decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Hear nothing more."""
        self._is_closed = True
        self._loop.remove_reader(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()

    def _hear(self) -> None:
        self._loop.remove_reader(self._descriptor)
        try:
            more = os.read(self._descriptor, _CHUNK_BYTES)
        except OSError:
            more = b""
        if more:
            self._kept = (self._kept + more)[-self._most :]
            self._timer = self._loop.call_later(self._pause_s, self._go_on)

    def _go_on(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._descriptor, self._hear)


class Orders:
    """What a worker is told, as fast as it takes it; what a dead one does not take is dropped."""

    def __init__(self, descriptor: int, data: bytes) -> None:
        """`descriptor` does not block already."""
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._unsent = memoryview(data)

    def send(self) -> None:
        """Begin, or go on."""
        try:
            self._unsent = self._unsent[os.write(self._descriptor, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = self._unsent[:0]  # it is dead; what it said before is still to be heard
        if self._unsent:
            self._loop.add_writer(self._descriptor, self.send)
        else:
            self.close()

    def close(self) -> None:
        """Send nothing more."""
        self._loop.remove_writer(self._descriptor)


class Inlet:
    """What a program reads. Whatever was handed over goes out whole, also if who did so gives up waiting."""

    def __init__(self, descriptor: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._unsent = bytearray()
        self._is_closed = False
        self._waiting: list[asyncio.Future[None]] = []
        os.set_blocking(descriptor, False)

    @property
    def waiting_bytes(self) -> int:
        """How much the program has not taken yet."""
        return len(self._unsent)

    async def send(self, data: bytes) -> None:
        """Hand bytes over, and wait until the program has taken them; ConnectionError if it never will."""
        self._unsent += data
        self._flush()
        if self._unsent and not self._is_closed:
            taken: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(taken)
            await taken
        if self._is_closed:
            raise ConnectionError

    def close(self) -> None:
        """Send nothing more."""
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
