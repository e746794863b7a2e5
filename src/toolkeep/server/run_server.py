"""Runs the app with uvicorn, with a graceful shutdown.

Readiness turns off first. Behind a load balancer the server then drains: it serves until the balancer has
noticed. Then calls finish within their grace period, or are recorded as cut short.
"""

import ipaddress
import logging
import math
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

import uvicorn

from toolkeep.errors import Code
from toolkeep.limits import ServerLimits
from toolkeep.mcp_server.http_headers import LOOPBACK
from toolkeep.mcp_server.serve_http import raise_gc_threshold
from toolkeep.mcp_server.uvicorn_protocol import BoundedProtocol, Header
from toolkeep.mcp_server.uvicorn_shutdown import GracefulServer
from toolkeep.server.asgi_app import KeepApp
from toolkeep.server.http.problem_details import document, problem

_CLOSE: Final = (b"connection", b"close")


class Server(GracefulServer):
    """uvicorn server of one app."""

    def __init__(self, app: KeepApp, limits: ServerLimits) -> None:
        protocol = type("Protocol", (ServerProtocol,), {"limits": limits, "heads": {}})
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            access_log=False,
            log_config=None,
            # X-Forwarded-* is set by any client; trusting it would fake the scheme, and with it origins and
            # cookies.
            proxy_headers=False,
            # No version numbers for scanners.
            server_header=False,
            timeout_keep_alive=round(limits.idle_s),
            timeout_graceful_shutdown=max(1, round(limits.grace_s)),
        )
        super().__init__(config, app.begin_shutdown)
        self._app = app
        self._drain_s = limits.drain_s
        self._drained_at = math.inf

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Signal handler: drain first where there is a load balancer."""
        self._app.service.health.drain()
        if self._drain_s and not self.signals:
            self.signals, self._drained_at = 1, time.monotonic() + self._drain_s
        else:
            super().handle_exit(sig, frame)

    def stop(self) -> None:
        """Refuse new calls, and mark the keep as ending."""
        self._app.service.health.stop()
        self._app.service.keep.end_soon()
        super().stop()

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn ten times a second; returns whether to shut down."""
        if time.monotonic() >= self._drained_at:
            self.stop()
        elif self._drained_at < math.inf and _CLOSE not in self.config.encoded_headers:
            # Each answer ends its connection. One that a load balancer keeps open would end in the shutdown,
            # perhaps just after a request was sent on it.
            self.config.encoded_headers.append(_CLOSE)
            counter = 0  # for uvicorn to use the changed headers
        return await super().on_tick(counter)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def names_of(host: str) -> frozenset[str]:
    """Allowed host names of a server bound to an address."""
    if is_loopback(host):
        return LOOPBACK
    return frozenset((f"[{host}]" if ":" in host else host.lower(),))


def bind(host: str, port: int) -> socket.socket:
    """Open a listening socket; raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(2048)
    except OSError:
        sock.close()
        raise
    return sock


def _log_with_us() -> None:
    """Send uvicorn's logs to our handlers."""
    ours, theirs = logging.getLogger("toolkeep"), logging.getLogger("uvicorn")
    theirs.handlers, theirs.propagate = list(ours.handlers), False
    theirs.setLevel(max(ours.getEffectiveLevel(), logging.WARNING))


def serve(app: KeepApp, sock: socket.socket, limits: ServerLimits, begun: Callable[[], None]) -> None:
    """Serve until the process receives a signal; `begun` is called before the first request."""
    _log_with_us()
    raise_gc_threshold()
    begun()
    Server(app, limits).run(sockets=[sock])


_UNHEARD: Final = {
    400: (Code.REQUEST_INVALID, "the request is not valid HTTP/1.1"),
    408: (Code.REQUEST_TOO_BIG, "the request took too long to arrive"),
    431: (Code.REQUEST_TOO_BIG, "the headers are too long"),
}


class ServerProtocol(BoundedProtocol):
    """One client connection, with problem documents for unreadable requests."""

    def refusal(self, status: int) -> tuple[list[Header], bytes]:
        """Headers and body of a 400, 408 or 431."""
        code, text = _UNHEARD[status]
        given = problem(document(code, status, text))
        return given.head(), given.body
