"""The MCP server: every client can use a keep.

`__all__` is public, and the modules below are internal. A name is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolkeep.limits import McpLimits
    from toolkeep.mcp.approvals import ask_client
    from toolkeep.mcp.bounded import BoundedProtocol
    from toolkeep.mcp.client import Client, current_client
    from toolkeep.mcp.features import Prompt, Resource
    from toolkeep.mcp.http import McpApp
    from toolkeep.mcp.server import McpServer
    from toolkeep.mcp.stdio import serve_stdio

_HOMES = {
    "BoundedProtocol": "mcp.bounded",
    "Client": "mcp.client",
    "McpApp": "mcp.http",
    "McpLimits": "limits",
    "McpServer": "mcp.server",
    "Prompt": "mcp.features",
    "Resource": "mcp.features",
    "ask_client": "mcp.approvals",
    "current_client": "mcp.client",
    "serve_stdio": "mcp.stdio",
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


if not TYPE_CHECKING:  # a type checker that saw it would believe every name to be there

    def __getattr__(name):
        if name in _HOMES:
            value = getattr(importlib.import_module(f"toolkeep.{_HOMES[name]}"), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module 'toolkeep.mcp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
