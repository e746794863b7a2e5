"""Serves the ASGI app of an MCP server on this machine, with uvicorn (the extra `server`)."""

import ipaddress

from toolkeep.mcp.http import McpApp
from toolkeep.mcp.server import McpServer

PATH = "/mcp"


def check_loopback(host: str) -> None:
    """Raise for an address that others could reach: nobody is asked who they are yet."""
    try:
        is_here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = False
    if not is_here:
        raise ValueError(f"{host} can be reached by others, and nobody is asked who they are yet")


def serve_http(server: McpServer, host: str = "127.0.0.1", port: int = 0) -> None:
    """Serve until the process is told to end."""
    check_loopback(host)
    import uvicorn

    config = uvicorn.Config(
        McpApp(server, path=PATH),
        host=host,
        port=port,
        access_log=False,
        log_level="warning",
        proxy_headers=False,
    )
    uvicorn.Server(config).run()
