"""FastMCP: the `LocalProvider` that holds a server's own tools, and its BM25 search."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from fastmcp import FastMCP  # type: ignore[import-not-found, unused-ignore]
from fastmcp.server.providers import LocalProvider  # type: ignore[import-not-found, unused-ignore]
from fastmcp.server.transforms.search import (  # type: ignore[import-not-found, unused-ignore]
    BM25SearchTransform,
)

from rivals.registry import CallKind


class FastMcpRegistry:
    """Default settings; it minds the case of names."""

    name: ClassVar[str] = "fastmcp"
    package: ClassVar[str] = "fastmcp"
    timed: ClassVar[str] = (
        "LocalProvider.add_tool, get_tool, list_tools; no FastMCP around it, but for search: "
        "call_tool('search_tools') of BM25SearchTransform, which is to answer with names alone"
    )
    is_async: ClassVar[bool] = True

    def __init__(self) -> None:
        self._provider = provider = LocalProvider()
        searched = FastMCP("bench", providers=[provider])
        searched.add_transform(BM25SearchTransform(search_result_serializer=_names))
        self.calls: Mapping[CallKind, Callable[[str], Any]] = {
            "look up, exact name": provider.get_tool,
            "a miss": provider.get_tool,
            "list all, by the tool": lambda _: provider.list_tools(),
            "search, a sentence": lambda text: searched.call_tool("search_tools", {"query": text}),
        }

    def register(self, *tools: Any) -> None:
        for tool in tools:
            self._provider.add_tool(tool)


def _names(tools: Any) -> str:
    return " ".join(tool.name for tool in tools)
