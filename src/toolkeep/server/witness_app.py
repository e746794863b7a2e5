"""A witness over HTTP (c2sp.org/tlog-witness): `POST <prefix>/add-checkpoint`, and nothing else.

Anybody may ask; the signature on a checkpoint says whose it is. So everything about a request is bounded
before it is read: its rate, its length, and how many are answered at once.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

from toolkeep.audit.witness_protocol import REQUEST_BYTES
from toolkeep.host.token_bucket import TokenBucket
from toolkeep.mcp_server.http_app import Gone, TooLong, read_body
from toolkeep.mcp_server.http_headers import Headers
from toolkeep.server.http.responses import Response, send_response
from toolkeep.storage.log.witness_folder import Witness

_TEXT: Final = b"text/plain; charset=utf-8"
_SIZE: Final = b"text/x.tlog.size"
_PER_SECOND: Final = 50.0
_BURST: Final = 100.0
"""Requests of all logs together; a log sends one a second at most."""
_AT_ONCE: Final = 8
"""Requests that are answered at once: each waits for the disk, one after the other."""


class WitnessApp:
    """ASGI app of one witness."""

    def __init__(self, witness: Witness, prefix: str = "") -> None:
        self._witness = witness
        self._path = f"{prefix}/add-checkpoint"
        self._bucket = TokenBucket(_PER_SECOND, _BURST)
        self._in_flight = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        try:
            given = await self._answered(scope, receive)
        except Gone:
            return
        await send_response(send, given)

    async def _answered(self, scope: Any, receive: Any) -> Response:
        if scope["path"] != self._path or scope["query_string"]:
            return _text(404, "there is nothing here")
        if scope["method"] != "POST":
            return Response(405, headers=((b"allow", b"POST"),))
        if self._in_flight >= _AT_ONCE or not self._bucket.take():
            return Response(429, headers=((b"retry-after", b"1"),))
        self._in_flight += 1
        try:
            body = await read_body(receive, Headers.of(scope), REQUEST_BYTES)
            return await asyncio.to_thread(self._cosigned, body)
        except TooLong:
            return Response(413, headers=((b"connection", b"close"),))
        finally:
            self._in_flight -= 1

    def _cosigned(self, body: bytes) -> Response:
        given = self._witness.respond(body.decode(errors="replace"))
        kind = _SIZE if given.status == 409 else _TEXT
        return Response(given.status, given.text.encode(), kind)


def _text(status: int, text: str) -> Response:
    return Response(status, text.encode(), _TEXT)


def serve_witness(witness: Witness, sock: socket.socket, begun: Callable[[], None]) -> None:
    """Serve a witness alone, at the root of a socket, until the process receives a signal."""
    import uvicorn

    from toolkeep.mcp_server.uvicorn_protocol import BoundedProtocol
    from toolkeep.mcp_server.uvicorn_shutdown import GracefulServer

    config = uvicorn.Config(
        WitnessApp(witness),
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    begun()
    GracefulServer(config, lambda: None).run([sock])
