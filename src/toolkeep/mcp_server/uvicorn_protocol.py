"""uvicorn's HTTP protocol with limits on how much a client may send, and how slowly.

uvicorn itself limits neither the size of headers nor the time in which a request arrives or a response is
read. It also treats an `Upgrade` header as the end of the request: the body was lost, or parsed as the next
request (request smuggling). Here `Upgrade` is ignored, as RFC 9110 (7.8) permits.
"""

import asyncio
import math
import re
from collections.abc import Callable
from typing import Any, ClassVar, Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from toolkeep.limits import DEFAULT_SERVER_LIMITS, ServerLimits

Header = tuple[bytes, bytes]

_READ_BYTES: Final = 256 * 1024
"""The most bytes of one read: a body may arrive together with its headers."""

_AUTHORITY: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")

_REASONS: Final = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


class BoundedProtocol(HttpToolsProtocol):
    """One client connection."""

    limits: ClassVar[ServerLimits] = DEFAULT_SERVER_LIMITS
    heads: ClassVar["dict[BoundedProtocol, None]"] = {}
    """Connections with an incomplete request head, oldest first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._is_in_head = True
        self._received = 0
        self._is_receiving = False
        self._is_offered = False
        """Whether this request has an `Upgrade` header: its head is parsed again without it."""
        self._deadline = Deadline(self.loop, self._is_late)
        self._unread = 0
        self._patience = Deadline(self.loop, self._look_for_reader)

    def connection_made(self, transport: Any) -> None:
        """Accept a connection, up to the limit."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.abort()
            return
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the timers of a closed connection."""
        self._deadline.close()
        self._patience.close()
        self.heads.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse input; the deadline runs from the first byte of a request."""
        if not self._is_receiving:
            self._begin()
        if self._is_in_head:
            # The parser buffers a header that never ends without a callback, so raw bytes are counted here:
            # one endless header would otherwise use up the memory.
            self._received += len(data)
            if self._received > self.limits.header_bytes + _READ_BYTES:
                self._head_bytes = self._received
                self.send_400_response("")
                return
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except HttpParserError:
            self.send_400_response("")

    def _feed(self, data: bytes | memoryview) -> None:
        while data:
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as offered:
                data = memoryview(data)[offered.args[0] :]
                head, self._is_offered = self._head_without_offer(), False
                self.parser = HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
                self.parser.feed_data(head)
            else:
                return

    def _head_without_offer(self) -> bytes:
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        """A request begins."""
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count a part of the request target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count one header."""
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is complete: check it."""
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise ValueError("nothing is tunnelled here")
            self._is_offered = True
            return
        self._check_head()
        self._is_in_head, self._received = False, 0
        self.heads.pop(self, None)
        self._deadline.set(self.limits.send_s)
        super().on_headers_complete()

    def _check_head(self) -> None:
        """Refuse ambiguous framing and a target whose host differs from `Host`."""
        for name, value in self.headers:
            # With another coding, this server and a proxy before it could disagree where the body ends: the
            # rest would be smuggled in as a second request that the proxy never checked.
            if name == b"transfer-encoding" and value.lower() != b"chunked":
                raise ValueError("no other coding is undone here, and somebody before us may have")
        if self.url.startswith(b"/"):
            return
        named = _AUTHORITY.match(self.url)
        if named is not None and (b"host", named[1]) not in self.headers:
            # An absolute target overrides Host (RFC 9112, 3.2.2). Two different hosts are never allowed ones:
            # the check of `Host` refuses duplicates.
            self.headers.append((b"host", named[1]))

    def on_body(self, body: bytes) -> None:
        """Take a part of the body; after an early response, only a limited rest is read."""
        if self.cycle.response_complete:
            self._received += len(body)
            if self._received > self.limits.body_bytes:
                self.transport.abort()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self._is_offered:
            return
        self._is_receiving, self._is_in_head, self._received = False, True, 0
        self._deadline.clear()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The write buffer is full: the client reads too slowly."""
        super().pause_writing()
        self._unread = self.transport.get_write_buffer_size()
        self._patience.set(self.limits.read_s)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._patience.clear()

    def _look_for_reader(self) -> None:
        """Drop a client that has read nothing since the last check.

        Unread responses hold memory and a connection: slow readers could occupy all of both.
        """
        left = self.transport.get_write_buffer_size()
        if left >= self._unread:
            self.transport.abort()
            return
        self._unread = left
        self._patience.set(self.limits.read_s)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 -- uvicorn's words
        """Answer a request that cannot be parsed."""
        self._refuse(431 if self._head_bytes > self.limits.header_bytes else 400)

    def refusal(self, status: int) -> tuple[list[Header], bytes]:  # noqa: ARG002 -- for those who say more
        """Headers and body of a 400, 408 or 431; subclasses say more."""
        return [(b"content-length", b"0")], b""

    def _begin(self) -> None:
        self._is_receiving = True
        self._deadline.set(self.limits.head_s)
        self.heads[self] = None
        if len(self.heads) > self.limits.heads:
            # Slow heads (Slowloris) would otherwise use up all connections. A head sent at once is never
            # the oldest.
            next(iter(self.heads)).transport.abort()

    def _count(self, length: int) -> None:
        self._head_bytes += length
        if self._head_bytes > self.limits.header_bytes:
            raise ValueError("the headers are too long")

    def _is_late(self) -> None:
        if not self._is_receiving or self.transport.is_closing():
            return
        self.heads.pop(self, None)
        if not getattr(self.cycle, "response_started", False):
            self._refuse(408)
        else:
            self.transport.close()

    def _refuse(self, status: int) -> None:
        headers, body = self.refusal(status)
        lines = [b"HTTP/1.1 %d %b" % (status, _REASONS[status])]
        lines += [name + b": " + value for name, value in headers]
        lines += [b"connection: close", b"", body]
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()


class Deadline:
    """A deadline that can be moved cheaply; a timer for each request took 3 µs of it."""

    __slots__ = ("_at", "_due", "_loop", "_passed", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, passed: Callable[[], None]) -> None:
        """`passed` is called when the deadline passes."""
        self._loop = loop
        self._passed = passed
        self._due = math.inf
        self._at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """Set the deadline from now, replacing an earlier one."""
        due = self._due = self._loop.time() + seconds
        if due < self._at:
            self._arm(due)

    def clear(self) -> None:
        """Remove the deadline; a running timer finds nothing to do."""
        self._due = math.inf

    def close(self) -> None:
        """Remove the deadline and stop the timer."""
        self._due = self._at = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        self._timer = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        """The timer fired; the deadline may have moved."""
        self._timer, self._at = None, math.inf
        if self._loop.time() < self._due < math.inf:
            self._arm(self._due)
        elif self._due < math.inf:
            self._due = math.inf
            self._passed()
