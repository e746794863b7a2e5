"""uvicorn's HTTP protocol inside bounds: how much a client may send before it is heard, and how slowly.

uvicorn itself bounds neither the headers nor the time that a request takes to arrive or an answer to be read.
It also takes an offer to go on in another protocol (`Upgrade`) for the end of the request: its body was lost,
or read as the next request. Here the offer is passed over, as RFC 9110 (7.8) lets a server do.
"""

import re
from typing import Any, ClassVar, Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from toolkeep.limits import DEFAULT_SERVER_LIMITS, ServerLimits
from toolkeep.mcp.deadline import Deadline

Header = tuple[bytes, bytes]

_READ_BYTES: Final = 256 * 1024
"""The most that one read hands over: a body may come with its headers."""

_AUTHORITY: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")

_REASONS: Final = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    limits: ClassVar[ServerLimits] = DEFAULT_SERVER_LIMITS
    heads: ClassVar["dict[BoundedProtocol, None]"] = {}
    """The connections of one server whose request has no whole head yet, the oldest first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._is_in_head = True
        self._received = 0
        self._is_receiving = False
        self._is_offered = False
        """Whether the head of this request offers another protocol: it is read once more, without that."""
        self._deadline = Deadline(self.loop, self._is_late)
        self._unread = 0
        self._patience = Deadline(self.loop, self._look_for_reader)

    def connection_made(self, transport: Any) -> None:
        """A client is there; one too many is sent away."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.abort()
            return
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._deadline.close()
        self._patience.close()
        self.heads.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some of a request; the clock runs from its first byte."""
        if not self._is_receiving:
            self._begin()
        if self._is_in_head:
            # A header that never ends is not handed to us: only what arrives can be counted.
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
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
                self.parser.feed_data(head)
            else:
                return

    def _head_without_offer(self) -> bytes:
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        """A request."""
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Some of its target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The body follows."""
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
        for name, value in self.headers:
            if name == b"transfer-encoding" and value.lower() != b"chunked":
                raise ValueError("no other coding is undone here, and somebody before us may have")
        if self.url.startswith(b"/"):
            return
        named = _AUTHORITY.match(self.url)
        if named is not None and (b"host", named[1]) not in self.headers:
            self.headers.append((b"host", named[1]))  # which makes two, and none that is spoken to

    def on_body(self, body: bytes) -> None:
        """Some of the body; of one that was answered before it was there, only so much is read."""
        if self.cycle.response_complete:
            self._received += len(body)
            if self._received > self.limits.body_bytes:
                self.transport.abort()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """It is all there."""
        if self._is_offered:
            return
        self._is_receiving, self._is_in_head, self._received = False, True, 0
        self._deadline.clear()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """More waits for the client than it reads."""
        super().pause_writing()
        self._unread = self.transport.get_write_buffer_size()
        self._patience.set(self.limits.read_s)

    def resume_writing(self) -> None:
        """It reads."""
        super().resume_writing()
        self._patience.clear()

    def _look_for_reader(self) -> None:
        """Send a client away that has read nothing since the last look."""
        left = self.transport.get_write_buffer_size()
        if left >= self._unread:
            self.transport.abort()
            return
        self._unread = left
        self._patience.set(self.limits.read_s)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 -- uvicorn's words
        """What is no HTTP."""
        self._refuse(431 if self._head_bytes > self.limits.header_bytes else 400)

    def refusal(self, status: int) -> tuple[list[Header], bytes]:  # noqa: ARG002 -- for those who say more
        """Headers and body of an answer to what cannot be heard: 400, 408 or 431."""
        return [(b"content-length", b"0")], b""

    def _begin(self) -> None:
        self._is_receiving = True
        self._deadline.set(self.limits.head_s)
        self.heads[self] = None
        if len(self.heads) > self.limits.heads:
            # Half-sent heads would else use up all connections. A head that is sent at once is never oldest.
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
