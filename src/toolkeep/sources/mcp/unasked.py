"""The stream on which a server says what nobody asked for (2025-11-25, Listening for Messages).

It is held only where somebody answers questions of servers, since those may come there. What is wrong with
what the server says ends the conversation; a stream that is not there, or breaks off, does not.
"""

import asyncio
from contextlib import aclosing, suppress
from typing import Final

from toolkeep.network.budget import Budget
from toolkeep.network.errors import NetworkError
from toolkeep.sources.mcp.event_stream import EventReader, events_of
from toolkeep.sources.mcp.http_session import RESUMPTIONS, HttpSession, exchange_budget, kind_of
from toolkeep.sources.mcp.speaking import Heard, UpstreamFailed
from toolkeep.wire.messages import Message

REPLIES: Final = 50
"""What a server may ask of us while it answers one request."""
DEFAULT_RETRY_MS: Final = 1_000

_LISTEN_SECONDS: Final = 2.0
"""How long a server may take to begin the stream, before a call goes on without."""


class Replies:
    """What a server is told that asks something of us; nobody has to listen to questions without end."""

    def __init__(self, session: HttpSession, heard: Heard) -> None:
        self._session = session
        self._heard = heard
        self._count = 0

    def forgive(self) -> None:
        """An answer came: what was asked before it no longer counts."""
        self._count = 0

    async def take(self, message: Message) -> None:
        """Judge a message that answers nothing, and reply where it wants that. Raises `UpstreamFailed`."""
        if (reply := self._heard.take(message)) is None:
            return
        self._count += 1
        if self._count > REPLIES:
            raise UpstreamFailed(f"it asked for more than {REPLIES} things at once")
        with suppress(UpstreamFailed):  # what it makes of our no is its own affair
            await self._session.reply(reply)


class UnaskedStream:
    """Holds the stream from the first call on."""

    def __init__(self, session: HttpSession, heard: Heard) -> None:
        self._session = session
        self._replies = Replies(session, heard)
        self._hearing: asyncio.Task[None] | None = None
        self._could_hear = asyncio.Event()
        self._is_there: bool | None = None
        """Whether the server has such a stream, once that is known."""
        self.has_failed = False
        """Whether what came on it ends the conversation."""

    async def listen(self) -> None:
        """Hold the stream; goes on once it is there, or is not coming."""
        if not self._session.has_handshake or self._is_there is False:
            return
        if self._hearing is None or self._hearing.done():
            self._could_hear = asyncio.Event()
            self._hearing = asyncio.get_running_loop().create_task(self._hear())
        try:
            async with asyncio.timeout(_LISTEN_SECONDS):
                await self._could_hear.wait()
        except TimeoutError:
            self._could_hear.set()  # later calls do not wait for it again

    def forgive(self) -> None:
        """An answer came: what was asked before it no longer counts."""
        self._replies.forgive()

    async def close(self) -> None:
        """Hear nothing more."""
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.wait({self._hearing})

    async def _hear(self) -> None:
        """Over as many streams as it takes, within bounds."""
        reader, budget = EventReader(), exchange_budget()
        try:
            for _ in range(RESUMPTIONS):
                await self._hear_stream(reader, budget)
                self._could_hear.clear()  # a call that begins now waits for the next one
                await asyncio.sleep((reader.retry_ms or DEFAULT_RETRY_MS) / 1_000)
                reader.begin()
        except UpstreamFailed:
            self._is_there = self._is_there is True
        finally:
            self._could_hear.set()

    async def _hear_stream(self, reader: EventReader, budget: Budget) -> None:
        again = {"Last-Event-ID": reader.last_id} if reader.last_id else {}
        async with self._session.opened("GET", again, None, budget) as answer:
            if kind_of(answer) != "text/event-stream":
                raise UpstreamFailed("it has no stream for what it says unasked")
            self._is_there = True
            self._could_hear.set()
            try:
                async with aclosing(events_of(answer.pieces(), reader)) as events:
                    async for data in events:
                        await self._take(await self._session.read(data))
            except UpstreamFailed:
                self.has_failed = True
                raise
            except NetworkError:
                return

    async def _take(self, message: Message) -> None:
        if not message.method:
            raise UpstreamFailed("it answered a request that nobody made")
        await self._replies.take(message)
