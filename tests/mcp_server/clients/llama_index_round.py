"""llama-index's MCP tools; each request opens a session of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from llama_index.tools.mcp import (  # type: ignore[import-not-found, unused-ignore]
    BasicMCPClient,
    McpToolSpec,
)

from tests.mcp_server.clients.steps import Heard, Server, Session, run


class LlamaIndex(Session):
    def __init__(self, client: Any) -> None:
        self._client = client

    async def tools(self) -> list[str]:
        return [tool.metadata.name for tool in await McpToolSpec(self._client).to_tool_list_async()]

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        tools = await McpToolSpec(self._client, allowed_tools=[name]).to_tool_list_async()
        said = await tools[0].acall(**arguments)
        return {"text": said.content, "is_error": said.raw_output.is_error}

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        return str((await self._client.get_prompt(name, arguments))[0].content)

    async def resource(self, uri: str) -> str:
        return str((await self._client.read_resource(uri)).contents[0].text)


@asynccontextmanager
async def opened(server: Server, heard: Heard) -> AsyncIterator[Session]:
    words = server.get("command")
    yield LlamaIndex(
        BasicMCPClient(words[0], args=words[1:], timeout=60) if words else BasicMCPClient(server["url"])
    )


run(opened)
