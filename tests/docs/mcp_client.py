"""A stand-in for the reader's MCP client: the official Python client (mcp 2.x), set up by `.mcp.json` of this folder.

Run by the Python of its own environment: SCRIPT CALL, the name and arguments of one call as JSON; prints its text.
"""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from mcp import Client  # type: ignore[import-not-found, unused-ignore]
from mcp.client.stdio import StdioServerParameters  # type: ignore[import-not-found, unused-ignore]

VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")
"""As clients that read `.mcp.json` replace it: a variable, and what it is where it is not set."""


async def main(entry: dict[str, Any], call: str) -> None:
    arguments = [VARIABLE.sub(lambda found: os.environ.get(*found.groups()), one) for one in entry["args"]]
    server = StdioServerParameters(command=entry["command"], args=arguments, env=entry.get("env"))
    async with Client(server) as client:
        result = await client.call_tool(**json.loads(call))
        print(result.content[0].text)


configuration = json.loads(Path(".mcp.json").read_text("utf-8"))
asyncio.run(main(configuration["mcpServers"]["toolkeep"], sys.argv[1]))
