"""FastMCP: a server's own `call_tool`, and its client in memory."""

import contextlib
import functools
from collections.abc import AsyncIterator
from typing import Any, Literal

from fastmcp import Client, FastMCP  # type: ignore[import-not-found, unused-ignore]

from rivals.caller import Prepare
from workloads.calls import Work


class FastMcpCalls:
    """A server with one tool."""

    package = "fastmcp"

    def __init__(self, way: Literal["server", "client"]) -> None:
        self._way = way
        self.name = "fastmcp" if way == "server" else "fastmcp client"
        self.timed = (
            "FastMCP.call_tool with a dict; no message"
            if way == "server"
            else "Client(FastMCP).call_tool with a dict; the messages stay in this process"
        )

    @contextlib.asynccontextmanager
    async def open(self, work: Work) -> AsyncIterator[Prepare]:
        server = FastMCP("bench")
        server.add_tool(work.function)
        async with contextlib.AsyncExitStack() as stack:
            asked: Any = server if self._way == "server" else await stack.enter_async_context(Client(server))
            yield lambda number: functools.partial(asked.call_tool, work.name, work.arguments(number))

    def is_expected(self, answer: Any) -> bool:
        return bool(answer.structured_content == {"result": "done"} and not answer.is_error)
