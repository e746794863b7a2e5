"""One connection between a worker and a host: bytes are counted, and an idle connection times out."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Final, Self

from toolkeep.limits import NETWORK_IDLE_SECONDS
from toolkeep.network.budget import Budget
from toolkeep.network.dial import dial
from toolkeep.network.errors import HostTooSlow
from toolkeep.network.resolve import ResolvedHost

CHUNK_BYTES: Final = 1 << 16
"""Bytes read at once, and the buffer limit of the stream; the same as asyncio's default limit."""


class Relay:
    """Streams of both ends. The host's is open inside `async with`; the worker's belongs to the caller."""

    def __init__(
        self, vetted: ResolvedHost, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: Budget
    ) -> None:
        self.vetted = vetted
        self._budget = budget
        self.worker = (reader, writer)
        self.sent_bytes = 0
        self.received_bytes = 0

    async def __aenter__(self) -> Self:
        # Only a vetted address can be dialled: `dial` takes no name.
        self.host = await asyncio.open_connection(sock=await dial(self.vetted), limit=CHUNK_BYTES)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.host[1].transport.abort()

    @contextlib.asynccontextmanager
    async def idle_timeout(self) -> AsyncIterator[None]:
        """Inside this block, raise `HostTooSlow` if nothing moves for the idle timeout."""
        try:
            async with asyncio.timeout(NETWORK_IDLE_SECONDS) as self._idle:
                yield
        except TimeoutError:
            raise HostTooSlow("the connection was idle for too long") from None

    async def send(self, data: bytes) -> None:
        """Forward bytes to the host."""
        self._budget.take_bytes(len(data))
        self.sent_bytes += len(data)
        await self._write(self.host[1], data)

    async def receive(self) -> bytes:
        """Bytes from the host, counted; empty at the end."""
        data = await self.host[0].read(CHUNK_BYTES)
        self._budget.take_bytes(len(data))
        self.received_bytes += len(data)
        self._reset_idle_timer()
        return data

    async def receive_from_worker(self) -> bytes:
        """Bytes from the worker; empty at the end."""
        data = await self.worker[0].read(CHUNK_BYTES)
        self._reset_idle_timer()
        return data

    async def reply(self, data: bytes) -> None:
        """Forward bytes to the worker."""
        await self._write(self.worker[1], data)

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        # Back-pressure: a slow reader slows the writer down, instead of filling our memory.
        await writer.drain()
        self._reset_idle_timer()

    def _reset_idle_timer(self) -> None:
        self._idle.reschedule(asyncio.get_running_loop().time() + NETWORK_IDLE_SECONDS)


@contextlib.contextmanager
def one_error() -> Iterator[None]:
    """Unwrap the first error of a task group."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
