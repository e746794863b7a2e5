"""uvicorn's HTTP protocol inside bounds: how much a client may send before it is heard, and how slowly.

uvicorn itself bounds neither the headers nor the time that a request takes to arrive.
"""

from typing import Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from toolkeep.limits import DEFAULT_SERVER_LIMITS, ServerLimits
from toolkeep.mcp.deadline import Deadline

Header = tuple[bytes, bytes]

_READ_BYTES: Final = 256 * 1024
"""The most that one read hands over: a body may come with its headers."""

_REASONS: Final = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    limits: ClassVar[ServerLimits] = DEFAULT_SERVER_LIMITS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._is_in_head = True
        self._received = 0
        self._is_receiving = False
        self._deadline = Deadline(self.loop, self._is_late)

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
        super().data_received(data)

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
        self._is_in_head, self._received = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """It is all there."""
        self._is_receiving, self._is_in_head = False, True
        self._deadline.clear()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 -- uvicorn's words
        """What is no HTTP."""
        self._refuse(431 if self._head_bytes > self.limits.header_bytes else 400)

    def refusal(self, status: int) -> tuple[list[Header], bytes]:  # noqa: ARG002 -- for those who say more
        """Headers and body of an answer to what cannot be heard: 400, 408 or 431."""
        return [(b"content-length", b"0")], b""

    def _begin(self) -> None:
        self._is_receiving = True
        self._deadline.set(self.limits.send_s)

    def _count(self, length: int) -> None:
        self._head_bytes += length
        if self._head_bytes > self.limits.header_bytes:
            raise ValueError("the headers are too long")

    def _is_late(self) -> None:
        if not self._is_receiving or self.transport.is_closing():
            return
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
