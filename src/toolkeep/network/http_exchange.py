"""One HTTP request to one resolved host and its response, whose body is streamed.

Input: a `Request` and a `ResolvedHost`. Output: an `OpenAnswer`, or a `NetworkError` without addresses or
headers in its text. The server is hostile: head and body are bounded, and nothing is decompressed (a
decompression bomb is small on the wire).
"""

import asyncio
import functools
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import h11

from toolkeep.limits import ANSWER_PIECES, DIAL_SECONDS, HEAD_BYTES
from toolkeep.network.budget import Budget
from toolkeep.network.dial import dial
from toolkeep.network.errors import AnswerTooBig, AnswerUnusable, HostUnreachable, NetworkError
from toolkeep.network.hosts import Host
from toolkeep.network.http_endpoint import Request
from toolkeep.network.resolve import ResolvedHost

_CHUNK_BYTES: Final = 1 << 16
"""Bytes read at once, and the buffer limit of the stream; the same as asyncio's default limit."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class OpenAnswer:
    """A response whose head has been read."""

    def __init__(self, host: Host, head: h11.Response, pieces: "_Pieces") -> None:
        self.host = str(host)
        self.status = head.status_code
        self.headers = tuple(
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers
        )
        """Names in lower case."""
        self._pieces = pieces

    def header(self, wanted: str) -> str:
        """First header of a lower-case name; empty if missing."""
        return next((value for name, value in self.headers if name == wanted), "")

    @property
    def content_type(self) -> str:
        """The Content-Type header."""
        return self.header("content-type")

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body in chunks."""
        # We asked for identity. Decompressing anyway would allow a decompression bomb.
        if self.header("content-encoding").lower() not in ("", "identity"):
            raise self._pieces.was_sent(
                AnswerUnusable(f"'{self.host}' sent a compressed response, which was not requested")
            )
        while piece := await self._pieces.next():
            yield piece

    async def body(self, max_bytes: int) -> bytes:
        """The whole body, up to a limit."""
        body = bytearray()
        async for piece in self.pieces():
            body += piece
            if len(body) > max_bytes:
                raise self._pieces.was_sent(
                    AnswerTooBig(f"the answer of '{self.host}' has more than {max_bytes} bytes")
                )
        return bytes(body)


@asynccontextmanager
async def exchange(request: Request, vetted: ResolvedHost, budget: Budget) -> AsyncIterator[OpenAnswer]:
    """Send a request and yield the response after its head; the connection closes with the block."""
    host = vetted.host
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
    async with _connected(await dial(vetted), host) as streams:
        pieces = _Pieces(streams[0], connection, host, budget)
        try:
            await _send(streams[1], connection, request, host, budget)
        # Its text contains the header, secrets included.
        except (h11.LocalProtocolError, UnicodeEncodeError):
            raise NetworkError(f"a request to '{host}' has a header that cannot be sent") from None
        except OSError:
            raise HostUnreachable(f"the connection to '{host}' broke off") from None
        # From here on the server may have acted: failures are reported as unknown outcome, not as "not done".
        pieces.is_sent = True
        yield OpenAnswer(host, await pieces.head(), pieces)


@asynccontextmanager
async def _connected(opened: socket.socket, host: Host) -> AsyncIterator[Streams]:
    """Streams over a connected socket, with TLS for https."""
    is_secure = host.scheme == "https"
    try:
        streams = await asyncio.open_connection(
            sock=opened,
            limit=_CHUNK_BYTES,
            ssl=_context() if is_secure else None,
            # The certificate is verified for the name of the URL, although the connection is to a pinned
            # address.
            server_hostname=host.name if is_secure else None,
            ssl_handshake_timeout=DIAL_SECONDS if is_secure else None,
        )
    except ssl.SSLCertVerificationError as error:
        raise HostUnreachable(f"the certificate of '{host}' is invalid: {error.verify_message}") from None
    except OSError:
        raise HostUnreachable(f"TLS with '{host}' failed") from None
    try:
        yield streams
    finally:
        # abort, not close: a close would wait for a server that does not read.
        streams[1].transport.abort()


@functools.cache
def _context() -> ssl.SSLContext:
    """The system's trust store, as OpenSSL is configured here."""
    return ssl.create_default_context()


async def _send(
    writer: asyncio.StreamWriter, connection: h11.Connection, request: Request, host: Host, budget: Budget
) -> None:
    headers = {
        "Host": host.authority,
        "User-Agent": "toolkeep",
        "Accept": "application/json, */*;q=0.5",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    if request.body is not None:
        headers |= {"Content-Type": request.content_type, "Content-Length": str(len(request.body))}
    # The tool's headers replace our defaults; framing headers cannot be among them (`_refuse_ours`).
    own = {name.lower() for name, _ in request.headers}
    lines = [(name, value) for name, value in headers.items() if name.lower() not in own]
    target = "/" + request.url.partition("://")[2].partition("/")[2].partition("#")[0]
    head = h11.Request(method=request.method, target=target, headers=[*lines, *request.headers])
    data = (connection.send(head) or b"") + (connection.send(h11.Data(data=request.body or b"")) or b"")
    data += connection.send(h11.EndOfMessage()) or b""
    # Counted before it is sent.
    budget.take_bytes(len(data))
    writer.write(data)
    await writer.drain()


class _Pieces:
    """Reads response events, within the budget."""

    def __init__(
        self, reader: asyncio.StreamReader, connection: h11.Connection, host: Host, budget: Budget
    ) -> None:
        self._reader = reader
        self._connection = connection
        self._host = host
        self._budget = budget
        self._left = ANSWER_PIECES
        self.is_sent = False

    def was_sent(self, error: NetworkError) -> NetworkError:
        """The error, marked with whether the request had been sent."""
        error.was_sent = self.is_sent
        return error

    async def head(self) -> h11.Response:
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise self.was_sent(AnswerUnusable(f"'{self._host}' gave no answer"))

    async def next(self) -> bytes:
        """Next body chunk; empty at the end."""
        while True:
            event = await self._event()
            if isinstance(event, h11.EndOfMessage):
                return b""
            if not isinstance(event, h11.Data):
                raise self.was_sent(AnswerUnusable(f"the answer of '{self._host}' broke off"))
            if event.data:
                return bytes(event.data)

    async def _event(self) -> object:
        # Bounded number of events: one-byte chunks would cost far more CPU than their bytes say.
        self._left -= 1
        if self._left < 0:
            reason = f"the answer of '{self._host}' comes in more than {ANSWER_PIECES} pieces"
            raise self.was_sent(AnswerUnusable(reason))
        try:
            while (event := self._connection.next_event()) is h11.NEED_DATA:
                data = await self._reader.read(_CHUNK_BYTES)
                self._budget.take_bytes(len(data))
                self._connection.receive_data(data)
        except h11.RemoteProtocolError:
            reason = f"the answer of '{self._host}' broke off, or is not HTTP/1.1"
            raise self.was_sent(AnswerUnusable(reason)) from None
        except OSError:
            raise self.was_sent(HostUnreachable(f"the connection to '{self._host}' broke off")) from None
        except NetworkError as error:
            raise self.was_sent(error) from None
        return event
