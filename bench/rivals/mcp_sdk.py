"""The MCP SDK: a function added to an `MCPServer`."""

import asyncio

import mcp_types  # type: ignore[import-not-found, unused-ignore]
import pydantic_core
from mcp.server.mcpserver import MCPServer  # type: ignore[import-not-found, unused-ignore]
from mcp.server.mcpserver.exceptions import ToolError  # type: ignore[import-not-found, unused-ignore]
from mcp.server.mcpserver.tools import Tool  # type: ignore[import-not-found, unused-ignore]
from pydantic import ValidationError

from rivals.contestant import Check, Function


class NotAMessage(Exception):
    """The SDK's reader refuses the line; what it says is the text."""


def arguments_on_the_wire(name: str, raw: str) -> dict[str, object]:
    """The arguments of a `tools/call` line as the SDK's stdio and HTTP transports read it."""
    line = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}","arguments":{raw}}}}}'
    try:
        message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError as error:
        raise NotAMessage(str(error)) from error
    arguments: dict[str, object] = message.params["arguments"]
    return arguments


class McpSdk:
    """`MCPServer`, default settings."""

    name = "mcp"
    package = "mcp"
    sent = (
        "the text inside a tools/call line, read by the SDK's own message adapter, then MCPServer.call_tool"
    )
    timed = "pydantic_core.from_json, then FuncMetadata.validate_arguments; no envelope"
    takes_text = False

    def send(self, function: Function, raw: str) -> str:
        server = MCPServer("bench")
        server.add_tool(function)
        try:
            arguments = arguments_on_the_wire(function.__name__, raw)
            return str(asyncio.run(server.call_tool(function.__name__, arguments)))
        except (NotAMessage, ToolError) as error:
            return str(error)

    def check(self, function: Function) -> Check:
        validate = Tool.from_function(function).fn_metadata.validate_arguments
        from_json = pydantic_core.from_json

        def check(raw: bytes) -> object:
            return validate(from_json(raw))

        return check
