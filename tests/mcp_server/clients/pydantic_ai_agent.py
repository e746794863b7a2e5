"""An agent of pydantic-ai with an MCP toolset; its model calls one tool and repeats what it says."""

import asyncio
import json
import sys
from typing import Any

from fastmcp.client import Client  # type: ignore[import-not-found, unused-ignore]
from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found, unused-ignore]
from pydantic_ai import Agent  # type: ignore[import-not-found, unused-ignore]
from pydantic_ai.mcp import MCPToolset  # type: ignore[import-not-found, unused-ignore]
from pydantic_ai.models.test import TestModel  # type: ignore[import-not-found, unused-ignore]


async def said(toolset: Any, name: str) -> str:
    agent = Agent(TestModel(call_tools=[name]), toolsets=[toolset])
    async with agent:
        return str((await agent.run("Greet somebody.")).output)


async def main(url: str, command: list[str]) -> None:
    over_http = await said(MCPToolset(url), "greet")
    stdio = Client(StdioTransport(command[0], command[1:]))
    print(json.dumps({"http": over_http, "stdio": await said(MCPToolset(stdio), "agent_hello_world")}))


asyncio.run(main(sys.argv[1], sys.argv[2:]))
