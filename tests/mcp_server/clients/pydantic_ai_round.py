"""pydantic-ai's MCP toolset: an agent whose model makes one call and repeats what it is told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found, unused-ignore]
from pydantic_ai import (  # type: ignore[import-not-found, unused-ignore]
    Agent,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.mcp import MCPToolset  # type: ignore[import-not-found, unused-ignore]
from pydantic_ai.models.function import FunctionModel  # type: ignore[import-not-found, unused-ignore]

from tests.mcp_server.clients.steps import Heard, Server, Session, run


class PydanticAi(Session):
    def __init__(self, toolset: Any) -> None:
        self._toolset = toolset

    async def tools(self) -> list[str]:
        return [tool.name for tool in await self._toolset.list_tools()]

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        told: list[Any] = []

        def model(messages: list[Any], _: Any) -> Any:
            told.extend(p for p in messages[-1].parts if isinstance(p, ToolReturnPart))
            return ModelResponse(parts=[TextPart("done") if told else ToolCallPart(name, arguments)])

        await Agent(FunctionModel(model), toolsets=[self._toolset]).run("Go.")
        return {"text": told[0].model_response_str(), "is_error": told[0].outcome == "retried"}

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        return str((await self._toolset.get_prompt(name, arguments)).messages[0].content.content)

    async def resource(self, uri: str) -> str:
        return str(await self._toolset.read_resource(uri))


@asynccontextmanager
async def opened(server: Server, heard: Heard) -> AsyncIterator[Session]:
    async def ask(message: str, *_: Any) -> Any:
        return heard.answer(message)

    async def log(message: Any) -> None:
        heard.notices.append(f"log: {message.data}")

    async def progress(_: float, __: float | None, message: str | None) -> None:
        heard.notices.append(f"progress: {message}")

    async def message(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            heard.changes.append(message.method)

    words = server.get("command")
    async with MCPToolset(
        StdioTransport(words[0], words[1:]) if words else server["url"],
        elicitation_handler=ask,
        log_handler=log,
        progress_handler=progress,
        message_handler=message,
    ) as toolset:
        yield PydanticAi(toolset)


run(opened)
