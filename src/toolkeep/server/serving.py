"""Serves the app with uvicorn, and ends it well: readiness off, then calls finished or recorded."""

import ipaddress
import logging
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from toolkeep.limits import ServerLimits
from toolkeep.mcp.collection import collect_rarely
from toolkeep.mcp.ending import EndingServer
from toolkeep.mcp.headers import LOOPBACK
from toolkeep.server.app import KeepApp
from toolkeep.server.protocol import ServerProtocol


class Server(EndingServer):
    """Serves one app."""

    def __init__(self, app: KeepApp, limits: ServerLimits) -> None:
        protocol = type("Protocol", (ServerProtocol,), {"limits": limits, "heads": {}})
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            access_log=False,
            log_config=None,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=max(1, round(limits.grace_s)),
        )
        super().__init__(config, app.let_go)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 -- a signal handler
        """Told to end: no more requests should come, and those that wait for a person are given up."""
        self._app.service.health.stop()
        self._app.service.keep.end_soon()
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def names_of(host: str) -> frozenset[str]:
    """The names by which a server that is bound to an address is spoken to."""
    if is_loopback(host):
        return LOOPBACK
    return frozenset((f"[{host}]" if ":" in host else host.lower(),))


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; raises OSError."""
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
    """What uvicorn has to say goes where our own logs go."""
    ours, theirs = logging.getLogger("toolkeep"), logging.getLogger("uvicorn")
    theirs.handlers, theirs.propagate = list(ours.handlers), False
    theirs.setLevel(max(ours.getEffectiveLevel(), logging.WARNING))


def serve(app: KeepApp, sock: socket.socket, limits: ServerLimits, begun: Callable[[], None]) -> None:
    """Serve until the process is told to end; `begun` is called before the first request is taken."""
    _log_with_us()
    collect_rarely()
    begun()
    Server(app, limits).run(sockets=[sock])
