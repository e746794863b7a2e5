"""openai-agents: its MCP servers, and the tools that it makes of them for a model."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents import Agent, RunContextWrapper  # type: ignore[import-not-found, unused-ignore]
from agents.mcp import (  # type: ignore[import-not-found, unused-ignore]
    MCPServerStdio,
    MCPServerStreamableHttp,
    MCPUtil,
)
from agents.tool_context import ToolContext  # type: ignore[import-not-found, unused-ignore]

from tests.mcp_server.clients.steps import Heard, Server, Session, run


class OpenaiAgents(Session):
    def __init__(self, server: Any) -> None:
        self._server = server

    async def tools(self) -> list[str]:
        return [tool.name for tool in await self._server.list_tools()]

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        agent: Any = Agent(name="a", mcp_servers=[self._server])
        made = await MCPUtil.get_all_function_tools(
            [self._server], convert_schemas_to_strict=False, run_context=RunContextWrapper(None), agent=agent
        )
        (tool,) = (tool for tool in made if tool.name == name)
        raw = json.dumps(arguments)
        context: Any = ToolContext(None, tool_name=name, tool_call_id="1", tool_arguments=raw)
        said: Any = await tool.on_invoke_tool(context, raw)
        return {"text": said["text"] if isinstance(said, dict) else str(said), "is_error": None}

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        return str((await self._server.get_prompt(name, arguments)).messages[0].content.text)

    async def resource(self, uri: str) -> str:
        return str((await self._server.read_resource(uri)).contents[0].text)


@asynccontextmanager
async def opened(server: Server, heard: Heard) -> AsyncIterator[Session]:
    async def message(message: Any) -> None:
        method = getattr(message, "method", "")
        if method == "notifications/tools/list_changed":
            heard.changes.append(method)
        if method == "notifications/message":
            heard.notices.append(f"log: {message.params.data}")

    words = server.get("command")
    options: Any = {"message_handler": message, "client_session_timeout_seconds": 60}
    connected: Any = (
        MCPServerStdio({"command": words[0], "args": words[1:]}, **options)
        if words
        else MCPServerStreamableHttp({"url": server["url"]}, **options)
    )
    async with connected:
        yield OpenaiAgents(connected)


run(opened)
