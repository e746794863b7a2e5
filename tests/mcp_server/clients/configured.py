"""The official client (mcp 2.x), connected by an entry of a client's configuration file.

PROGRAM FILE.json prints the names of the tools, then answers each line of its input (`name`, `arguments`) with `text`
and `is_error`, as JSON.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from mcp import Client  # type: ignore[import-not-found, unused-ignore]
from mcp.client.streamable_http import (  # type: ignore[import-not-found, unused-ignore]
    create_mcp_http_client,
    streamable_http_client,
)


async def main(entry: dict[str, Any]) -> None:
    async with create_mcp_http_client(headers=entry["headers"]) as http:
        transport = streamable_http_client(entry["url"], http_client=http)
        async with Client(transport) as client:
            print(json.dumps([tool.name for tool in (await client.list_tools()).tools]), flush=True)
            while line := await asyncio.to_thread(sys.stdin.readline):
                result = await client.call_tool(**json.loads(line))
                print(json.dumps({"text": result.content[0].text, "is_error": result.is_error}), flush=True)


(entry,) = json.loads(Path(sys.argv[1]).read_text())["mcpServers"].values()
asyncio.run(main(entry))
