"""The MCP SDK: `MCPServer.call_tool`, and its client in memory."""

import contextlib
import functools
from collections.abc import AsyncIterator
from typing import Any, Literal

from mcp import Client  # type: ignore[import-not-found, unused-ignore]
from mcp.server.mcpserver import MCPServer  # type: ignore[import-not-found, unused-ignore]

from rivals.caller import Prepare
from workloads.calls import Work


class McpCalls:
    """A server with one tool."""

    package = "mcp"

    def __init__(self, way: Literal["server", "client"]) -> None:
        self._way = way
        self.name = "mcp" if way == "server" else "mcp client"
        self.timed = (
            "MCPServer.call_tool with a dict; no message"
            if way == "server"
            else "Client(MCPServer).call_tool with a dict; the messages stay in this process"
        )

    @contextlib.asynccontextmanager
    async def open(self, work: Work) -> AsyncIterator[Prepare]:
        server = MCPServer("bench")
        server.add_tool(work.function)
        async with contextlib.AsyncExitStack() as stack:
            asked: Any = server if self._way == "server" else await stack.enter_async_context(Client(server))
            yield lambda number: functools.partial(asked.call_tool, work.name, work.arguments(number))

    def is_expected(self, answer: Any) -> bool:
        return bool(answer.structured_content == {"result": "done"} and not answer.is_error)
