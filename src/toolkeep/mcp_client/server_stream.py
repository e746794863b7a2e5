"""The GET stream for server-initiated messages (2025-11-25, Listening for Messages).

Opened only if elicitation is enabled, since only elicitation needs it. An invalid message ends the session; a
missing or broken stream does not.
"""

import asyncio
from contextlib import aclosing, suppress
from typing import Final

from toolkeep.mcp_client.http_session import RESUMPTIONS, HttpSession, exchange_budget, kind_of
from toolkeep.mcp_client.sse import SseReader, events_of
from toolkeep.mcp_client.transport import InboundMessages, UpstreamFailed
from toolkeep.mcp_protocol.jsonrpc import Message
from toolkeep.network.budget import Budget
from toolkeep.network.errors import NetworkError

REPLIES: Final = 50
"""Maximum number of server requests during one client request."""
DEFAULT_RETRY_MS: Final = 1_000
"""Reconnect delay of a stream whose server sent no `retry` field; short, because a call may be waiting."""

_LISTEN_SECONDS: Final = 2.0
"""Time limit for opening the stream, after which a call proceeds without it."""


class Replies:
    """Sends replies to server requests, with a limit against floods."""

    def __init__(self, session: HttpSession, inbound: InboundMessages) -> None:
        self._session = session
        self._inbound = inbound
        self._count = 0

    def reset_count(self) -> None:
        """A response arrived: reset the count."""
        self._count = 0

    async def take(self, message: Message) -> None:
        """Handle a server request or notification, and reply if needed. Raises `UpstreamFailed`."""
        if (reply := self._inbound.take(message)) is None:
            return
        self._count += 1
        # Each reply is a POST of ours: without a limit a server could use us to flood itself or a proxy.
        if self._count > REPLIES:
            raise UpstreamFailed(f"it asked for more than {REPLIES} things at once")
        with suppress(UpstreamFailed):  # a failed reply does not fail the call
            await self._session.reply(reply)


class ServerStream:
    """Keeps the GET stream open from the first call on, with reconnects."""

    def __init__(self, session: HttpSession, inbound: InboundMessages) -> None:
        self._session = session
        self._replies = Replies(session, inbound)
        self._reader: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._is_supported: bool | None = None
        """Whether the server supports the stream; None if unknown."""
        self.has_failed = False
        """Whether an invalid message on it ended the session."""

    async def listen(self) -> None:
        """Open the stream; returns once it is open or known to be unavailable."""
        if not self._session.has_handshake or self._is_supported is False:
            return
        if self._reader is None or self._reader.done():
            self._ready = asyncio.Event()
            self._reader = asyncio.get_running_loop().create_task(self._run())
        try:
            async with asyncio.timeout(_LISTEN_SECONDS):
                await self._ready.wait()
        except TimeoutError:
            self._ready.set()  # later calls do not wait again

    def reset_count(self) -> None:
        """A response arrived: reset the count of requests."""
        self._replies.reset_count()

    async def close(self) -> None:
        """Close the stream."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait({self._reader})

    async def _run(self) -> None:
        """Read the stream, reconnecting with backoff up to a limit."""
        reader, budget = SseReader(), exchange_budget()
        try:
            for _ in range(RESUMPTIONS):
                await self._read_stream(reader, budget)
                self._ready.clear()  # a call that starts now waits for the reconnect
                await asyncio.sleep((reader.retry_ms or DEFAULT_RETRY_MS) / 1_000)
                reader.begin()
        except UpstreamFailed:
            self._is_supported = self._is_supported is True
        finally:
            self._ready.set()

    async def _read_stream(self, reader: SseReader, budget: Budget) -> None:
        resume = {"Last-Event-ID": reader.last_id} if reader.last_id else {}
        async with self._session.opened("GET", resume, None, budget) as answer:
            if kind_of(answer) != "text/event-stream":
                raise UpstreamFailed("it offers no stream for notifications")
            self._is_supported = True
            self._ready.set()
            try:
                async with aclosing(events_of(answer.pieces(), reader)) as events:
                    async for data in events:
                        await self._take(await self._session.read(data))
            except UpstreamFailed:
                # A violation on this stream discredits the whole session, as one on a response does.
                self.has_failed = True
                raise
            except NetworkError:
                return

    async def _take(self, message: Message) -> None:
        if not message.method:
            raise UpstreamFailed("it answered a request that was not made")
        await self._replies.take(message)
