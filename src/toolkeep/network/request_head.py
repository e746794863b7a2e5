"""Parses request heads from a hostile client; what two parsers may read differently is refused.

h11 parses them, and accepts more than a proxy may: bare LF, folded lines, Content-Length beside chunked
encoding. A server behind us could read those differently (request smuggling). So the raw bytes are checked
first, and the parsed result after.
"""

import asyncio
import re
from collections.abc import Iterable

import h11

from toolkeep.limits import HEAD_BYTES, HEAD_SECONDS
from toolkeep.network.errors import HostTooSlow, NetworkRefused
from toolkeep.network.hosts import Host, HostRefused, read_host, read_url

HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect")
)
"""Connection headers (RFC 9110 section 7.6.1); Proxy-* headers are matched by prefix."""

METHODS = frozenset((b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"))
_LINE_BREAK_ALONE = re.compile(rb"\r(?!\n)|(?<!\r)\n|\x00")
_FOLDED = re.compile(rb"\r\n[ \t]")

Headers = list[tuple[bytes, bytes]]


async def read_head(
    reader: asyncio.StreamReader, connection: h11.Connection, first: bytes = b""
) -> h11.Request:
    """The request head, within a time limit; raises `NetworkRefused`, or `EOFError` if there is none.

    `first` was read already.
    """
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            raw = first + await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise NetworkRefused(f"the head of the request is longer than {HEAD_BYTES} bytes") from None
    except TimeoutError:
        raise HostTooSlow("the head of the request did not come in time") from None
    # On raw bytes: h11 normalises these, and the difference would be invisible afterwards.
    if _LINE_BREAK_ALONE.search(raw) or _FOLDED.search(raw):
        raise NetworkRefused("the head of the request has broken or folded lines")
    connection.receive_data(raw)
    try:
        request = connection.next_event()
    except h11.RemoteProtocolError:
        raise NetworkRefused("the request is not HTTP/1.1") from None
    # No HTTP/0.9, which has no headers and no Host to check.
    if not isinstance(request, h11.Request) or request.http_version not in (b"1.0", b"1.1"):
        raise NetworkRefused("the request is not HTTP/1.1")
    _check_framing(request)
    return request


def _check_framing(request: h11.Request) -> None:
    """Refuse two framings of one body: each parser would pick another end of the request."""
    names = [name for name, _ in request.headers]
    has_length, has_chunks = b"content-length" in names, b"transfer-encoding" in names
    if has_length and has_chunks:
        raise NetworkRefused("the request says its length in two ways")
    # RFC 9110 section 9.3.6 gives a CONNECT body no meaning: parsers may take it as the first tunnel bytes.
    if request.method == b"CONNECT" and (has_length or has_chunks):
        raise NetworkRefused("CONNECT has no body")


def tunnel_target(request: h11.Request) -> Host:
    """Host and port of a CONNECT."""
    try:
        host = read_host(request.target.decode("ascii"))
    except HostRefused as refused:
        raise NetworkRefused(f"CONNECT target is not a host: {refused.reason}") from None
    if not host.port:
        raise NetworkRefused("CONNECT needs a port, such as example.org:443")
    _check_agrees(request, host)
    return host


def forward_target(request: h11.Request) -> tuple[Host, bytes]:
    """Host of an absolute URL, and the origin-form target for its server."""
    # An allowlist: net.read and net.write are told apart by method, and an unknown one may do anything.
    if request.method not in METHODS:
        raise NetworkRefused("the method is not one of " + ", ".join(sorted(m.decode() for m in METHODS)))
    url = request.target.decode("ascii")
    try:
        host = read_url(url)
    except HostRefused as refused:
        raise NetworkRefused(f"this is a proxy, which needs a whole URL: {refused.reason}") from None
    if host.scheme != "http":
        raise NetworkRefused(f"{host.scheme} goes through CONNECT; only http is asked for by its URL")
    # A fragment is never sent; parsers disagree about a host before it.
    if "#" in url:
        raise NetworkRefused("a URL that is sent has no # part")
    _check_agrees(request, host)
    path = url.partition("://")[2].partition("/")[2]
    return host, f"/{path}".encode("ascii")


def direct_target(request: h11.Request, host: Host) -> bytes:
    """The target of a request to a server that the worker connected to."""
    if request.method not in METHODS:
        raise NetworkRefused("the method is not one of " + ", ".join(sorted(m.decode() for m in METHODS)))
    # Absolute URLs are for the proxy; some servers prefer one to the header Host.
    if not request.target.startswith(b"/") or b"#" in request.target:
        raise NetworkRefused("the target of a request to a server begins with / and has no # part")
    _check_agrees(request, host)
    return bytes(request.target)


def _check_agrees(request: h11.Request, host: Host) -> None:
    """The Host header must name the target. Only HTTP/1.0 may omit it (h11 checks that).

    Otherwise the allowlist would be checked for one host and a shared server would serve another.
    """
    for name, value in request.headers:
        if name != b"host":
            continue
        try:
            said = read_host(value.decode("latin-1"))
        except HostRefused as refused:
            raise NetworkRefused(f"the header Host names no host: {refused.reason}") from None
        if said.name != host.name or said.port not in (0, host.port):
            raise NetworkRefused("the header Host does not name the host that is asked for")


def end_to_end(headers: Iterable[tuple[bytes, bytes]], *also: bytes) -> Headers:
    """End-to-end headers as written, without hop-by-hop ones and `also`."""
    headers = list(headers)
    dropped = {*HOP_BY_HOP, *also}
    for name, value in headers:
        if name.lower() == b"connection":
            # RFC 9110 section 7.6.1: headers named by Connection are hop-by-hop too.
            dropped.update(word.strip().lower() for word in value.split(b","))
    return [
        (name, value)
        for name, value in headers
        if name.lower() not in dropped and not name.lower().startswith(b"proxy-")
    ]
