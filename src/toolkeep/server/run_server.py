"""Runs the app with uvicorn, with a graceful shutdown.

Readiness turns off first; then calls finish within their grace period, or are recorded as cut short.
"""

import ipaddress
import logging
import signal
import socket
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
            timeout_graceful_shutdown=max(1, round(limits.grace_s)),
        )
        super().__init__(config, app.begin_shutdown)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 -- a signal handler
        """Signal handler: mark the server not ready and the keep as ending."""
        self._app.service.health.stop()
        self._app.service.keep.end_soon()
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


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
