"""fastmcp's client."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Client  # type: ignore[import-not-found, unused-ignore]
from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found, unused-ignore]
from fastmcp.exceptions import ToolError  # type: ignore[import-not-found, unused-ignore]

from tests.mcp_server.clients.steps import Heard, Server, Session, run


class Fastmcp(Session):
    def __init__(self, client: Any) -> None:
        self._client = client

    async def tools(self) -> list[str]:
        return [tool.name for tool in await self._client.list_tools()]

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            result = await self._client.call_tool(name, arguments)
        except ToolError as error:
            return {"text": str(error), "is_error": True}
        return {"text": result.content[0].text, "is_error": False}

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        return str((await self._client.get_prompt(name, arguments)).messages[0].content.text)

    async def resource(self, uri: str) -> str:
        return str((await self._client.read_resource(uri))[0].text)


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
    async with Client(
        StdioTransport(words[0], words[1:]) if words else server["url"],
        elicitation_handler=ask,
        log_handler=log,
        progress_handler=progress,
        message_handler=message,
    ) as client:
        yield Fastmcp(client)


run(opened)
