"""Loopback redirect listener on 127.0.0.1 for one authorization response (RFC 8252).

Any web page and any local program can send requests to it. Only a response with the right `state` is
accepted; the page returned echoes nothing of the request.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from toolkeep.mcp_client.transport import UpstreamFailed

PATH: Final = "/callback"
WAIT_SECONDS: Final = 300.0
"""Time limit for a person to sign in."""
_HEAD_BYTES: Final = 16 * 1024
_HEAD_SECONDS: Final = 10.0
_FIELDS: Final = 20
_FOREIGN_REQUESTS: Final = 50
"""Maximum number of foreign requests, so that `state` cannot be guessed by trying."""

Answer = Mapping[str, str]
IsOurs = Callable[[Answer], bool]


class RedirectListener:
    """An open listener."""

    def __init__(self, port: int, answer: "asyncio.Future[Answer]") -> None:
        self.redirect_uri = f"http://127.0.0.1:{port}{PATH}"
        self._answer = answer

    async def answer(self, seconds: float = WAIT_SECONDS) -> Answer:
        """Wait for the authorization response. Raises `UpstreamFailed`."""
        try:
            async with asyncio.timeout(seconds):
                return await self._answer
        except TimeoutError:
            raise UpstreamFailed(f"no sign-in within {seconds:g} s") from None


@asynccontextmanager
async def listening(is_ours: IsOurs, port: int = 0) -> AsyncIterator[RedirectListener]:
    """Listen on a port, 0 for any. Raises `UpstreamFailed` if it is taken."""
    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    callback = _Callback(is_ours, answer)
    try:
        # The address, not `localhost`: a resolver could lead the name elsewhere (RFC 8252, section 8.3).
        server = await asyncio.start_server(callback, "127.0.0.1", port, limit=_HEAD_BYTES)
    except OSError:
        raise UpstreamFailed(f"port {port} of this machine is taken") from None
    async with server:
        try:
            yield RedirectListener(server.sockets[0].getsockname()[1], answer)
        finally:
            answer.cancel()


def is_free(port: int) -> bool:
    """Whether a loopback port is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class _Callback:
    def __init__(self, is_ours: IsOurs, answer: "asyncio.Future[Answer]") -> None:
        self._is_ours = is_ours
        self._answer = answer
        self._foreign_requests = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, EOFError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_page(is_taken=self._take(head)))
                await writer.drain()
        writer.close()

    def _take(self, head: bytes) -> bool:
        found = _answer_in(head)
        if found is None or self._answer.done() or self._foreign_requests >= _FOREIGN_REQUESTS:
            return False
        if not self._is_ours(found):
            self._foreign_requests += 1
            return False
        self._answer.set_result(found)
        return True


def _answer_in(head: bytes) -> Answer | None:
    """Query parameters of a request for our path; None for other requests and for duplicate parameters."""
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    target = urlsplit(rest.rpartition(" ")[0])
    if method != "GET" or target.path != PATH:
        return None
    try:
        fields = parse_qsl(target.query, max_num_fields=_FIELDS, keep_blank_values=True)
    except ValueError:
        return None
    # With two `state` or `code` parameters the checked one might not be the used one (parameter pollution).
    return dict(fields) if len(dict(fields)) == len(fields) else None


def _page(*, is_taken: bool) -> bytes:
    words = "You can close this window." if is_taken else "This is not the expected redirect."
    status = "200 OK" if is_taken else "400 Bad Request"
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(words)}\r\n"
        # The URL of this page holds the code: it must reach neither caches nor a Referer header.
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return f"{head}{words}".encode()
