"""One HTTP response: JSON for a single message, an SSE stream once there are more."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from toolkeep.limits import MCP_STREAM_MESSAGES, MCP_UNREAD_BYTES
from toolkeep.mcp_protocol.jsonrpc import is_notification

_JSON: Final = (b"content-type", b"application/json")
_EVENTS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
_MINOR: Final = frozenset((b"progress", b"output"))
"""Events of the server's own streams that may be dropped: the result contains all of them."""
_OPEN_S: Final = 1.0
"""A response that takes longer becomes a stream, whose comments keep proxies and read timeouts quiet."""
_PING_S: Final = 15.0
"""Keep-alive interval of an idle stream; proxies close idle connections after a minute."""

RETRY: Final = b"retry: 1000\r\n\r\n"
"""Milliseconds; behind a load balancer another server answers at once."""

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Reply:
    """The response to one request."""

    # Most replies are one message: the state of a stream is created with the stream.
    _waiting: list[bytes]
    _held = 0
    _waits: "tuple[Receive, asyncio.Task[Any]]"
    _more: asyncio.Event
    _pump: asyncio.Task[None] | None = None
    _watcher: asyncio.Task[None] | None = None
    _is_over = False
    is_gone = False
    """Whether the client has disconnected."""
    prime: Callable[[], None] | None = None
    """Sends the event with which a resumable stream begins."""
    goes_on: Callable[[], bool] | None = None
    """Called on a disconnect; returns whether the work continues (a resumable stream)."""

    def __init__(self, send: Callable[[MutableMapping[str, Any]], Awaitable[None]]) -> None:
        self._send = send

    def await_answer(self, receive: Receive, task: "asyncio.Task[Any]") -> None:
        """Set the task to cancel when the client disconnects; see `look`."""
        self._waits = receive, task

    # --- at once ---------------------------------------------------------------------------------

    async def status(self, status: int, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        """Send a response without a body."""
        await self._whole(status, b"", headers or [])

    async def json(self, status: int, body: bytes) -> None:
        """Send one message as JSON."""
        await self._whole(status, body, [_JSON])

    async def _whole(self, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self._is_over = True
        length = (b"content-length", b"%d" % len(body))
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        await self._send({"type": "http.response.body", "body": body})

    # --- as a stream -----------------------------------------------------------------------------

    def open(self) -> None:
        """Start the SSE stream."""
        if self._pump is None:
            self._waiting = []
            self._more = asyncio.Event()
            self._pump = asyncio.ensure_future(self._carry())

    def emit(self, frame: bytes, event: bytes = b"message", *, name: bytes = b"") -> None:
        """Queue one event, with an id to resume after.

        Nothing is sent after the answer. Notifications are dropped while the client reads too slowly: an
        unbounded queue would let a client that never reads use up the memory.
        """
        if self._is_over:
            return
        self.open()
        if self._is_full and (event in _MINOR or is_notification(frame)):
            return
        lines = b"event: %b\r\ndata: %b\r\n\r\n" % (event, frame)
        self._waiting.append(b"id: %b\r\n%b" % (name, lines) if name else lines)
        self._held += len(lines)
        self._more.set()

    @property
    def _is_full(self) -> bool:
        return len(self._waiting) >= MCP_STREAM_MESSAGES or self._held > MCP_UNREAD_BYTES

    async def finish(self, status: int, frame: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """Send the last message."""
        if self._pump is None:
            await self._whole(status, frame, [_JSON, *headers])
            return
        await self.finish_stream(frame)

    async def finish_stream(self, frame: bytes, event: bytes = b"message") -> None:
        """Send the last event of the stream, starting the stream if necessary."""
        self.open()
        self._waiting.append(b"event: %b\r\ndata: %b\r\n\r\n" % (event, frame))
        self.end()
        if self._pump is not None:
            await self._pump

    @property
    def is_stream(self) -> bool:
        """Whether the stream has started."""
        return self._pump is not None

    async def until_closed(self) -> None:
        """Wait for the end of the stream; cancelling the waiter leaves the stream open."""
        if self._pump is not None:
            await asyncio.shield(self._pump)

    def advise_retry(self) -> None:
        """Tell the client to reconnect soon: the stream ends with this server, not by itself."""
        if self._pump is not None and not self._is_over:
            self._waiting.append(RETRY)

    def end(self) -> None:
        """Close the stream after what is queued."""
        self._is_over = True
        self._more.set()

    async def _carry(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
        while True:
            if self._waiting:
                body, self._waiting, self._held = b"".join(self._waiting), [], 0
                await self._send({"type": "http.response.body", "body": body, "more_body": True})
            elif self._is_over:
                await self._send({"type": "http.response.body", "body": b""})
                return
            else:
                self._more.clear()
                try:
                    await asyncio.wait_for(self._more.wait(), _PING_S)
                except TimeoutError:
                    self._waiting.append(b": \r\n\r\n")

    # --- whether the client is there -------------------------------------------------------------

    def look(self) -> None:
        """Start to watch for a disconnect, and soon open the stream."""
        self.watch(*self._waits)
        asyncio.get_running_loop().call_later(_OPEN_S, self._open_idle)

    def _open_idle(self) -> None:
        if not (self._is_over or self.is_gone):
            if self.prime is not None:
                self.prime()
            self.open()

    def watch(self, receive: Receive, task: "asyncio.Task[Any]") -> None:
        """Cancel a task when the client disconnects."""
        if self._watcher is None:
            self._watcher = asyncio.ensure_future(self._look(receive, task))

    async def _look(self, receive: Receive, task: "asyncio.Task[Any]") -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.is_gone = True
        if self._pump is not None:
            self._pump.cancel()
        if self.goes_on is None or not self.goes_on():
            task.cancel()

    def stop_watching(self) -> None:
        """The answer is ready: a disconnect no longer matters."""
        if self._watcher is not None and not self.is_gone:
            self._watcher.cancel()
