"""One connection between a worker and a host: what moves on it is counted, and it may not stand idle."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Final, Self

from toolkeep.limits import NETWORK_IDLE_SECONDS
from toolkeep.network.budget import Budget
from toolkeep.network.dialing import dial
from toolkeep.network.errors import HostTooSlow
from toolkeep.network.vetting import Vetted

CHUNK_BYTES: Final = 1 << 16


class Link:
    """The streams of both ends. The host's is open while the link is entered; the worker's is its owner's."""

    def __init__(
        self, vetted: Vetted, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: Budget
    ) -> None:
        self._vetted = vetted
        self._budget = budget
        self.worker = (reader, writer)
        self.sent_bytes = 0
        self.received_bytes = 0

    async def __aenter__(self) -> Self:
        self.host = await asyncio.open_connection(sock=await dial(self._vetted), limit=CHUNK_BYTES)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.host[1].transport.abort()

    @contextlib.asynccontextmanager
    async def awake(self) -> AsyncIterator[None]:
        """What is done inside ends with `HostTooSlow` once nothing has moved for a while."""
        try:
            async with asyncio.timeout(NETWORK_IDLE_SECONDS) as self._idle:
                yield
        except TimeoutError:
            raise HostTooSlow("nothing moved on the connection for too long") from None

    async def send(self, data: bytes) -> None:
        """Pass bytes on to the host."""
        self._budget.take_bytes(len(data))
        self.sent_bytes += len(data)
        await self._write(self.host[1], data)

    async def receive(self) -> bytes:
        """Bytes from the host, counted; empty at its end."""
        data = await self.host[0].read(CHUNK_BYTES)
        self._budget.take_bytes(len(data))
        self.received_bytes += len(data)
        self._stay_awake()
        return data

    async def hear(self) -> bytes:
        """Bytes from the worker; empty at its end."""
        data = await self.worker[0].read(CHUNK_BYTES)
        self._stay_awake()
        return data

    async def reply(self, data: bytes) -> None:
        """Pass bytes on to the worker."""
        await self._write(self.worker[1], data)

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        await writer.drain()
        self._stay_awake()

    def _stay_awake(self) -> None:
        self._idle.reschedule(asyncio.get_running_loop().time() + NETWORK_IDLE_SECONDS)


@contextlib.contextmanager
def one_error() -> Iterator[None]:
    """The first error of a task group, as itself."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
