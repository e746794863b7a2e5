"""smolagents' MCP client, by an agent that executes the calls of its model."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import StdioServerParameters  # type: ignore[import-not-found, unused-ignore]
from smolagents import (  # type: ignore[import-not-found, unused-ignore]
    AgentError,
    MCPClient,
    Model,
    ToolCallingAgent,
)

from tests.mcp_server.clients.steps import Heard, Server, Session, run


class Smolagents(Session):
    def __init__(self, client: Any) -> None:
        self._client = client

    async def tools(self) -> list[str]:
        return [tool.name for tool in self._client.get_tools()]

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        agent = ToolCallingAgent(tools=self._client.get_tools(), model=Model(), verbosity_level=0)
        try:
            said = await asyncio.to_thread(agent.execute_tool_call, name, arguments)
        except AgentError as error:
            return {"text": str(error), "is_error": True}
        return {"text": str(said), "is_error": None}


@asynccontextmanager
async def opened(server: Server, heard: Heard) -> AsyncIterator[Session]:
    words = server.get("command")
    where = (
        StdioServerParameters(command=words[0], args=words[1:])
        if words
        else {"url": server["url"], "transport": "streamable-http"}
    )
    client = await asyncio.to_thread(MCPClient, where, structured_output=False)
    yield Smolagents(client)
    await asyncio.to_thread(client.disconnect)


run(opened)
