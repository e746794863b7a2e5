"""The official client (mcp 2.x), in both eras, over HTTP and stdio."""

import asyncio
import json
import sys
from typing import Any

from mcp import Client  # type: ignore[import-not-found, unused-ignore]
from mcp.client.stdio import StdioServerParameters  # type: ignore[import-not-found, unused-ignore]
from mcp_types import ElicitResult  # type: ignore[import-not-found, unused-ignore]


async def answer(_: Any, params: Any) -> Any:
    names = list(params.requested_schema["properties"])
    return ElicitResult(action="accept", content=dict.fromkeys(names, "Ada"))


async def over_http(url: str, mode: str) -> dict[str, Any]:
    told: list[float] = []

    async def progress(done: float, *_: Any) -> None:
        told.append(done)

    async with Client(url, mode=mode, elicitation_callback=answer) as client:
        tools = (await client.list_tools()).tools
        called = await client.call_tool("greet", {"name": "Ada"})
        refused = await client.call_tool("greet", {"nam": "Ada"})
        await client.call_tool("test_tool_with_progress", {}, progress_callback=progress)
        asked = await client.call_tool("test_input_required_result_elicitation", {})
        picture = await client.call_tool("test_image_content", {})
        resource = await client.read_resource("test://static-text")
        prompt = await client.get_prompt("test_simple_prompt")
        return {
            "version": client.protocol_version,
            "tools": sorted(tool.name for tool in tools),
            "called": called.content[0].text,
            "refused": refused.is_error,
            "progress": told,
            "asked": asked.content[0].text,
            "picture": picture.content[0].mime_type,
            "resource": resource.contents[0].text,
            "prompt": prompt.messages[0].content.text,
        }


async def over_stdio(command: list[str], mode: str) -> dict[str, Any]:
    server = StdioServerParameters(command=command[0], args=command[1:])
    async with Client(server, mode=mode) as client:
        called = await client.call_tool("agent_hello_world", {"name": "Ada"})
        return {"version": client.protocol_version, "called": called.content[0].text}


async def main(url: str, command: list[str]) -> None:
    found = {
        "http": {mode: await over_http(url, mode) for mode in ("legacy", "auto")},
        "stdio": {mode: await over_stdio(command, mode) for mode in ("legacy", "auto")},
    }
    print(json.dumps(found))


asyncio.run(main(sys.argv[1], sys.argv[2:]))
