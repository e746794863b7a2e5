"""MCP client transport over streamable HTTP: each request is a POST.

The response is one JSON message or an SSE stream that contains it. Streams are read incrementally: progress
is forwarded, server requests are answered, the response ends it. A broken stream is resumed if the server
gave event ids (2025-11-25, Resumability). A cancelled request is cancelled at the server: by a notification,
or since 2026-07-28 by closing the exchange. Between requests no stream is open, unless elicitation is enabled
(`server_stream.py`).
"""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, aclosing
from typing import TYPE_CHECKING, Any

from toolkeep.limits import OUTPUT_CAP_BYTES
from toolkeep.mcp_client.http_session import (
    BEST_EFFORT_SECONDS,
    RESUMPTIONS,
    HttpSession,
    exchange_budget,
    kind_of,
)
from toolkeep.mcp_client.server_stream import DEFAULT_RETRY_MS, Replies, ServerStream
from toolkeep.mcp_client.sse import SseReader, events_of
from toolkeep.mcp_client.transport import InboundMessages, Progress, UpstreamFailed, answered
from toolkeep.mcp_protocol.header_params import header_value
from toolkeep.mcp_protocol.jsonrpc import Message, notification, request
from toolkeep.mcp_protocol.versions import NAMED_BY
from toolkeep.network.budget import Budget
from toolkeep.network.errors import NetworkError
from toolkeep.network.http_exchange import OpenAnswer

if TYPE_CHECKING:
    from toolkeep.mcp_client.elicitation import Elicitations


class HttpTransport:
    """Streamable HTTP transport to one server."""

    def __init__(self, session: HttpSession, questions: "Elicitations | None" = None) -> None:
        self._session = session
        self._ids = itertools.count(1)
        self._inbound = InboundMessages(questions, session.reply)
        self._server_stream = ServerStream(session, self._inbound)
        self._is_closed = False
        self._cancelling: set[asyncio.Task[None]] = set()

    @property
    def is_alive(self) -> bool:
        """Whether the session is usable."""
        return not self._is_closed and not self._server_stream.has_failed

    def take_list_changed(self) -> frozenset[str]:
        """Which of `tools`, `prompts` and `resources` were notified as `list_changed` since the last time."""
        return self._inbound.take_list_changed()

    def watching(self, uri: str, heard: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `heard` for each `resources/updated` of a URI meanwhile."""
        return self._inbound.watching(uri, heard)

    def settle(self, version: str) -> None:
        """Send the negotiated version with each request."""
        self._session.settle(version)

    async def listen(self) -> None:
        """Open the GET stream for server-initiated messages.

        Returns once it is open or known to be unavailable.
        """
        await self._server_stream.listen()

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        on_progress: Progress | None = None,
        mirrored: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request and return its result."""
        number = next(self._ids)
        if on_progress is not None:
            self._inbound.listen(number, on_progress)
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": number}}
        headers = {**self._routing_headers(method, params), **(mirrored or {})}
        try:
            message = await self._answer(headers, request(number, method, params), number)
            self._inbound.answer()
            self._server_stream.reset_count()
            return answered(message)
        except UpstreamFailed as failed:
            # A protocol violation makes everything later on this session untrustworthy; the next call
            # reconnects.
            self._is_closed = self._is_closed or failed.is_over
            raise
        except asyncio.CancelledError:
            self._cancel(number)
            raise
        finally:
            self._inbound.forget(number)

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification."""
        await self._session.tell(notification(method, params), self._routing_headers(method, params or {}))

    def set_active(self, *, is_active: bool) -> None:
        """No-op: there is no local process."""

    async def suspend(self) -> None:
        """No-op: there is no local process."""

    async def resume(self) -> None:
        """No-op: there is no local process."""

    async def close(self) -> None:
        """Close streams and end the session."""
        self._is_closed = True
        await self._server_stream.close()
        if self._cancelling:
            await asyncio.wait(self._cancelling, timeout=BEST_EFFORT_SECONDS)
        await self._session.end()

    def discard(self) -> None:
        """No-op: no descriptor is held."""

    def _cancel(self, number: int) -> None:
        """Send `notifications/cancelled` in the background: the cancelled caller does not wait for it."""
        if not self._session.has_handshake:
            return  # closing the exchange cancels it; `initialize` must not be cancelled
        words = notification("notifications/cancelled", {"requestId": number})
        telling = asyncio.get_running_loop().create_task(self._session.send_best_effort(words))
        self._cancelling.add(telling)
        telling.add_done_callback(self._cancelling.discard)

    def _routing_headers(self, method: str, params: dict[str, Any]) -> dict[str, str]:
        """Headers `Mcp-Method` and `Mcp-Name`, which repeat the body."""
        if not self._session.version:
            return {}
        named = params.get(NAMED_BY.get(method, ""))
        said = {"Mcp-Method": method}
        return {**said, "Mcp-Name": header_value(named)} if isinstance(named, str) else said

    async def _answer(self, headers: Mapping[str, str], body: bytes, number: int) -> Message:
        """The response to a request, resuming its stream as often as allowed."""
        reader, budget = SseReader(), exchange_budget()
        found = await self._exchange("POST", headers, body, number, reader, budget)
        for _ in range(RESUMPTIONS):
            if found is not None:
                return found
            # Without an event id the stream cannot be resumed, and a repeated POST could run the tool twice.
            if not reader.last_id or not self._session.has_handshake:
                break
            wait_ms = DEFAULT_RETRY_MS if reader.retry_ms is None else reader.retry_ms
            # Backoff chosen by the server's `retry` (2025-11-25, Transports).
            await asyncio.sleep(wait_ms / 1_000)
            reader.begin()
            resume = {"Last-Event-ID": reader.last_id}
            found = await self._exchange("GET", resume, None, number, reader, budget)
        if found is None:
            raise UpstreamFailed("it gave no answer")
        return found

    async def _exchange(
        self,
        verb: str,
        headers: Mapping[str, str],
        body: bytes | None,
        number: int,
        reader: SseReader,
        budget: Budget,
    ) -> Message | None:
        """The response in one exchange; None if its stream ends before it."""
        async with self._session.opened(verb, headers, body, budget) as answer:
            if kind_of(answer) == "application/json":
                return _own(await self._session.read(await answer.body(OUTPUT_CAP_BYTES)), number)
            if kind_of(answer) != "text/event-stream":
                raise UpstreamFailed("it answered with what is neither JSON nor a stream of events")
            return await self._in_stream(answer, number, reader)

    async def _in_stream(self, answer: OpenAnswer, number: int, reader: SseReader) -> Message | None:
        replies = Replies(self._session, self._inbound)
        try:
            async with aclosing(events_of(answer.pieces(), reader)) as events:
                async for data in events:
                    message = await self._session.read(data)
                    if not message.method:
                        return _own(message, number)
                    await replies.take(message)
        except NetworkError as error:
            # Resumable: the break is handled by a reconnect in `_answer`.
            if not reader.last_id:
                raise UpstreamFailed(error.reason) from error
        return None


def _own(message: Message, number: int) -> Message:
    """Check the id: a response to another request could put one call's result into another's."""
    if message.method or message.id != number:
        raise UpstreamFailed("it answered a request that was not made")
    return message
