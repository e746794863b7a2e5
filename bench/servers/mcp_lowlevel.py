"""The MCP SDK's low-level server, which checks nothing: the least that it can do."""

import sys
from typing import Any

import anyio  # type: ignore[import-not-found, unused-ignore]
import mcp_types as types  # type: ignore[import-not-found, unused-ignore]
from mcp.server.lowlevel import Server  # type: ignore[import-not-found, unused-ignore]
from mcp.server.stdio import stdio_server  # type: ignore[import-not-found, unused-ignore]

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
AS_INSTALLED: dict[str, Any] = {"loop": "asyncio", "http": "h11"}
"""What uvicorn does without uvloop and httptools, which `mcp` does not bring."""


def make(count: int) -> object:
    names = ["echo", *(f"other_{number}" for number in range(count - 1))]
    tools = [types.Tool(name=name, description="Give back a text.", input_schema=SCHEMA) for name in names]

    async def list_tools(*_: object) -> object:
        return types.ListToolsResult(tools=tools)

    async def call_tool(_: object, params: object) -> object:
        text = params.arguments["text"]  # type: ignore[attr-defined]
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    return Server("bench", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stdio(server: object) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())  # type: ignore[attr-defined]


def main(where: str, count: int, address: str = "127.0.0.1", *, is_as_installed: bool = False) -> None:
    server = make(count)
    if where == "stdio":
        anyio.run(serve_stdio, server)
        return
    import uvicorn

    app = server.streamable_http_app(json_response=not is_as_installed, host=address)  # type: ignore[attr-defined]
    uvicorn.run(
        app,
        host=address,
        port=int(where),
        log_level="error",
        access_log=False,
        proxy_headers=False,
        **(AS_INSTALLED if is_as_installed else {}),
    )


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "as-installed"]
    count = int(words[1]) if len(words) > 1 else 1
    main(words[0], count, *words[2:3], is_as_installed="as-installed" in sys.argv)
