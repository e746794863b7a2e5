"""The MCP SDK: the `ToolManager` below `MCPServer`."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from mcp.server.mcpserver.tools import ToolManager  # type: ignore[import-not-found, unused-ignore]

from rivals.registry import CallKind


class McpRegistry:
    """Default settings; it minds the case of names and has no search."""

    name: ClassVar[str] = "mcp"
    package: ClassVar[str] = "mcp"
    timed: ClassVar[str] = "ToolManager.add_tool, get_tool, list_tools; no MCPServer around it"
    is_async: ClassVar[bool] = False

    def __init__(self) -> None:
        self._manager = ToolManager()
        self.calls: Mapping[CallKind, Callable[[str], Any]] = {
            "look up, exact name": self._manager.get_tool,
            "a miss": self._manager.get_tool,
            "list all, by the tool": lambda _: self._manager.list_tools(),
        }

    def register(self, *tools: Any) -> None:
        for tool in tools:
            self._manager.add_tool(tool)
