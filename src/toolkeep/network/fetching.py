"""Asks a server in the name of a call: to vetted addresses, within a budget, redirects vetted anew.

Comes in: a `Request`, and what the call may reach. Goes out: an `Answer`, or a `NetworkError` in words that
hold neither addresses nor headers. The server is hostile: its answer is bounded, and never unpacked.
"""

import asyncio
import functools
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urljoin

import h11
import msgspec

from toolkeep.limits import DIAL_SECONDS, HEAD_BYTES, REDIRECTS
from toolkeep.network.budget import Budget
from toolkeep.network.dialing import dial
from toolkeep.network.endpoint import Request
from toolkeep.network.errors import (
    AnswerTooBig,
    AnswerUnusable,
    HostUnreachable,
    NetworkError,
    NetworkRefused,
)
from toolkeep.network.hosts import Host, HostRefused, read_url
from toolkeep.network.reaching import READING, HostReach
from toolkeep.network.vetting import Vetted, vet

_CHUNK_BYTES: Final = 1 << 16
_KEEPS_METHOD: Final = frozenset((307, 308))
_REDIRECTS: Final = frozenset((301, 302, 303, *_KEEPS_METHOD))

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a server said in the end."""

    host: str
    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    """Names in lower case."""


async def fetch(request: Request, reach: HostReach, budget: Budget, max_bytes: int) -> Answer:
    """The answer to a request, over redirects where they lead to what may be reached."""
    first = _host(request.url)
    for redirects in range(REDIRECTS + 1):
        budget.take_request()
        try:
            vetted = await vet(_host(request.url), reach.by(request.method))
        except NetworkRefused:
            if not redirects:
                raise
            # Where to is not said: it may be an address inside the server's own network.
            raise NetworkRefused(f"'{first}' redirects to where this call may not go") from None
        outcome = await _ask(request, vetted, budget, max_bytes)
        if isinstance(outcome, Answer):
            return outcome
        request = outcome
    raise AnswerUnusable(f"'{first}' redirects more than {REDIRECTS} times")


async def _ask(request: Request, vetted: Vetted, budget: Budget, max_bytes: int) -> Answer | Request:
    """One exchange: the answer, or the request that a redirect asks for."""
    host = vetted.host
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
    async with _connected(await dial(vetted), host) as streams:
        is_sent = False
        try:
            await _send(streams[1], connection, request, host, budget)
            is_sent = True
            head = await _head(streams, connection, host, budget)
            if head.status_code in _REDIRECTS and (location := _header(head, b"location")):
                return _redirected(request, head.status_code, location)
            if _header(head, b"content-encoding").lower() not in ("", "identity"):
                raise AnswerUnusable(f"'{host}' packed its answer, which nobody asked for")
            body = await _body(streams, connection, host, budget, max_bytes)
        except NetworkError as error:
            error.was_sent = is_sent
            raise
        except OSError:
            broken = HostUnreachable(f"the connection to '{host}' broke off")
            broken.was_sent = is_sent
            raise broken from None
    content_type = _header(head, b"content-type")
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
    return Answer(
        host=str(host), status=head.status_code, content_type=content_type, body=body, headers=headers
    )


def _host(url: str) -> Host:
    try:
        return read_url(url)
    except HostRefused as refused:
        raise NetworkRefused(f"a URL cannot be used: {refused.reason}") from None


@asynccontextmanager
async def _connected(opened: socket.socket, host: Host) -> AsyncIterator[Streams]:
    """Streams over a connected socket, with TLS for https."""
    is_secure = host.scheme == "https"
    try:
        streams = await asyncio.open_connection(
            sock=opened,
            limit=_CHUNK_BYTES,
            ssl=_context() if is_secure else None,
            server_hostname=host.name if is_secure else None,
            ssl_handshake_timeout=DIAL_SECONDS if is_secure else None,
        )
    except ssl.SSLCertVerificationError as error:
        raise HostUnreachable(f"the certificate of '{host}' does not hold: {error.verify_message}") from None
    except OSError:
        raise HostUnreachable(f"TLS with '{host}' failed") from None
    try:
        yield streams
    finally:
        streams[1].transport.abort()


@functools.cache
def _context() -> ssl.SSLContext:
    """What the system trusts, as OpenSSL is set up here."""
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
    own = {name.lower() for name, _ in request.headers}
    lines = [(name, value) for name, value in headers.items() if name.lower() not in own]
    target = "/" + request.url.partition("://")[2].partition("/")[2].partition("#")[0]
    head = h11.Request(method=request.method, target=target, headers=[*lines, *request.headers])
    data = (connection.send(head) or b"") + (connection.send(h11.Data(data=request.body or b"")) or b"")
    data += connection.send(h11.EndOfMessage()) or b""
    budget.take_bytes(len(data))
    writer.write(data)
    await writer.drain()


async def _head(streams: Streams, connection: h11.Connection, host: Host, budget: Budget) -> h11.Response:
    while True:
        event = await _next(streams, connection, host, budget)
        if isinstance(event, h11.Response):
            return event
        if not isinstance(event, h11.InformationalResponse):
            raise AnswerUnusable(f"'{host}' gave no answer")


async def _body(
    streams: Streams, connection: h11.Connection, host: Host, budget: Budget, max_bytes: int
) -> bytes:
    body = bytearray()
    while True:
        event = await _next(streams, connection, host, budget)
        if isinstance(event, h11.EndOfMessage):
            return bytes(body)
        if not isinstance(event, h11.Data):
            raise AnswerUnusable(f"the answer of '{host}' broke off")
        body += event.data
        if len(body) > max_bytes:
            raise AnswerTooBig(f"the answer of '{host}' has more than {max_bytes} bytes")


async def _next(streams: Streams, connection: h11.Connection, host: Host, budget: Budget) -> object:
    try:
        while (event := connection.next_event()) is h11.NEED_DATA:
            data = await streams[0].read(_CHUNK_BYTES)
            budget.take_bytes(len(data))
            connection.receive_data(data)
    except h11.RemoteProtocolError:
        raise AnswerUnusable(f"the answer of '{host}' broke off, or is not HTTP/1.1") from None
    return event


def _header(head: h11.Response, wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in head.headers if name == wanted), "")


def _redirected(request: Request, status: int, location: str) -> Request:
    """The request that a redirect asks for: without the tool's headers unless the origin is the same."""
    before = _host(request.url)
    try:
        url = urljoin(request.url, location)
        after = read_url(url)
    except ValueError:  # `HostRefused` is one
        after = None
    if after is None or not url.isascii() or after.scheme not in ("http", "https"):
        raise AnswerUnusable(f"'{before}' redirects to what is no plain http URL")
    if (before.scheme, after.scheme) == ("https", "http"):
        raise NetworkRefused(f"'{before}' redirects from https to http")
    keeps_method = status in _KEEPS_METHOD or request.method in READING
    same = (before.scheme, before.name, before.port) == (after.scheme, after.name, after.port)
    return Request(
        method=request.method if keeps_method else "GET",
        url=url,
        headers=request.headers if same else (),
        body=request.body if keeps_method else None,
        content_type=request.content_type,
    )
