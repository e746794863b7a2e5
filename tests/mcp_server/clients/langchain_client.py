"""langchain's MCP adapters, over HTTP and stdio."""

import asyncio
import json
import sys
from typing import Any

from langchain_mcp_adapters.client import (  # type: ignore[import-not-found, unused-ignore]
    MultiServerMCPClient,
)


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


print(json.dumps(asyncio.run(langchain(sys.argv[1], sys.argv[2:]))))
