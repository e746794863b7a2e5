"""Serves an MCP server on this machine: over HTTP with uvicorn, on uvloop (both in the extra `server`)."""

import asyncio
import ipaddress
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from toolkeep.limits import DEFAULT_SERVER_LIMITS
from toolkeep.mcp.collection import collect_rarely

if TYPE_CHECKING:
    import socket

    from toolkeep.mcp.server import McpServer

PATH = "/mcp"


def check_loopback(host: str) -> None:
    """Raise for an address that others could reach: nobody is asked who they are."""
    try:
        is_here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = False
    if not is_here:
        raise ValueError(f"{host} can be reached by others; `toolkeep serve` asks them for a token")


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run until it ends, on uvloop where that is installed: a call over stdio takes 0.9 × the time."""
    collect_rarely()
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


def serve_http(
    server: "McpServer", host: str = "127.0.0.1", port: int = 0, *, sock: "socket.socket | None" = None
) -> None:
    """Serve until the process is told to end; at a socket that listens there already, if there is one."""
    check_loopback(host)
    import uvicorn

    from toolkeep.mcp.bounded import BoundedProtocol
    from toolkeep.mcp.ending import EndingServer
    from toolkeep.mcp.http import McpApp

    app = McpApp(server, path=PATH)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=BoundedProtocol,
        ws="none",
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        timeout_graceful_shutdown=round(DEFAULT_SERVER_LIMITS.grace_s),
    )
    collect_rarely()
    EndingServer(config, app.let_go).run(None if sock is None else [sock])
