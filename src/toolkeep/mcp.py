"""Public API of the MCP server, through which every MCP client can use a keep.

The names in `__all__` are public; the modules they come from are internal. Names are loaded lazily.
"""

from typing import TYPE_CHECKING

from toolkeep import _lazy_exports

if TYPE_CHECKING:
    from toolkeep.limits import McpLimits
    from toolkeep.mcp_server.client_approvals import ask_client
    from toolkeep.mcp_server.client_context import Client, current_client
    from toolkeep.mcp_server.dispatch import McpServer
    from toolkeep.mcp_server.features import Prompt, Resource
    from toolkeep.mcp_server.http_app import McpApp
    from toolkeep.mcp_server.stdio_server import serve_stdio
    from toolkeep.mcp_server.uvicorn_protocol import BoundedProtocol

_HOMES = {
    "BoundedProtocol": "mcp_server.uvicorn_protocol",
    "Client": "mcp_server.client_context",
    "McpApp": "mcp_server.http_app",
    "McpLimits": "limits",
    "McpServer": "mcp_server.dispatch",
    "Prompt": "mcp_server.features",
    "Resource": "mcp_server.features",
    "ask_client": "mcp_server.client_approvals",
    "current_client": "mcp_server.client_context",
    "serve_stdio": "mcp_server.stdio_server",
}

__all__ = [
    "BoundedProtocol",
    "Client",
    "McpApp",
    "McpLimits",
    "McpServer",
    "Prompt",
    "Resource",
    "ask_client",
    "current_client",
    "serve_stdio",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept every name
    __getattr__, __dir__ = _lazy_exports(globals(), _HOMES)
