"""The fastmcp client, over HTTP and stdio."""

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client  # type: ignore[import-not-found, unused-ignore]
from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found, unused-ignore]
from fastmcp.exceptions import ToolError  # type: ignore[import-not-found, unused-ignore]


async def main(url: str, command: list[str]) -> None:
    found: dict[str, Any] = {}
    async with Client(url) as client:
        found["tools"] = len(await client.list_tools())
        found["called"] = (await client.call_tool("greet", {"name": "Ada"})).content[0].text
        try:
            await client.call_tool("greet", {"nam": "Ada"})
        except ToolError as error:
            found["refused"] = str(error)
    async with Client(StdioTransport(command[0], command[1:])) as client:
        found["stdio"] = (await client.call_tool("agent_hello_world", {"name": "Ada"})).content[0].text
    print(json.dumps(found))


asyncio.run(main(sys.argv[1], sys.argv[2:]))
