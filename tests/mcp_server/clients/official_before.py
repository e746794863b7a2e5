"""The official client before 2026 (mcp 1.x), and langchain's adapters, which stand on it."""

import asyncio
import json
import sys
from typing import Any

from langchain_mcp_adapters.client import (  # type: ignore[import-not-found, unused-ignore]
    MultiServerMCPClient,
)
from mcp import (  # type: ignore[import-not-found, attr-defined, unused-ignore]
    ClientSession,
    StdioServerParameters,
    stdio_client,
)
from mcp.client.streamable_http import (  # type: ignore[import-not-found, unused-ignore]
    streamable_http_client,
)
from mcp.types import ElicitResult  # type: ignore[import-not-found, unused-ignore]


async def answer(_: Any, params: Any) -> Any:
    return ElicitResult(action="accept", content=dict.fromkeys(params.requestedSchema["properties"], "Ada"))


async def official(url: str, command: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with (
        streamable_http_client(url) as (read, write, *_),
        ClientSession(read, write, elicitation_callback=answer) as session,
    ):
        found["version"] = (await session.initialize()).protocolVersion
        called = await session.call_tool("greet", {"name": "Ada"})
        asked = await session.call_tool("test_elicitation", {"message": "Who?"})
        found |= {"called": called.content[0].text, "asked": asked.content[0].text}
    server = StdioServerParameters(command=command[0], args=command[1:])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        called = await session.call_tool("agent_hello_world", {"name": "Ada"})
        found["stdio"] = called.content[0].text
    return found


async def langchain(url: str, command: list[str]) -> dict[str, Any]:
    client = MultiServerMCPClient(
        {
            "http": {"transport": "streamable_http", "url": url},
            "stdio": {"transport": "stdio", "command": command[0], "args": command[1:]},
        }
    )
    tools = {tool.name: tool for tool in await client.get_tools()}
    called = await tools["greet"].ainvoke({"name": "Ada"})
    greeted = await tools["agent_hello_world"].ainvoke({"name": "Ada"})
    return {"tools": sorted(tools), "called": called[0]["text"], "stdio": greeted[0]["text"]}


async def main(url: str, command: list[str]) -> None:
    print(json.dumps({"official": await official(url, command), "langchain": await langchain(url, command)}))


asyncio.run(main(sys.argv[1], sys.argv[2:]))
