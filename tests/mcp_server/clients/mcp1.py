"""mcp 1: the official client before 2026."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import (  # type: ignore[import-not-found, attr-defined, unused-ignore]
    ClientSession,
    StdioServerParameters,
    stdio_client,
)
from mcp.client.streamable_http import (  # type: ignore[import-not-found, unused-ignore]
    streamable_http_client,
)
from mcp.types import (  # type: ignore[import-not-found, unused-ignore]
    ElicitResult,
    ToolListChangedNotification,
)
from pydantic import AnyUrl

from tests.mcp_server.clients.steps import Heard, Server, Session, run


class Mcp(Session):
    def __init__(self, client: Any, heard: Heard) -> None:
        self._client = client
        self._heard = heard

    async def tools(self) -> list[str]:
        return [tool.name for tool in (await self._client.list_tools()).tools]

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result = await self._client.call_tool(name, arguments, progress_callback=self._progress)
        return {"text": result.content[0].text, "is_error": result.isError}

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        return str((await self._client.get_prompt(name, arguments)).messages[0].content.text)

    async def resource(self, uri: str) -> str:
        return str((await self._client.read_resource(AnyUrl(uri))).contents[0].text)

    async def _progress(self, _: float, __: float | None, message: str | None) -> None:
        self._heard.notices.append(f"progress: {message}")


@asynccontextmanager
async def opened(server: Server, heard: Heard) -> AsyncIterator[Session]:
    async def ask(_: Any, params: Any) -> Any:
        return ElicitResult(action="accept", content=heard.answer(params.message))

    async def log(params: Any) -> None:
        heard.notices.append(f"log: {params.data}")

    async def message(message: Any) -> None:
        if isinstance(getattr(message, "root", None), ToolListChangedNotification):
            heard.changes.append(message.root.method)

    words = server.get("command")
    transport = (
        stdio_client(StdioServerParameters(command=words[0], args=words[1:]))
        if words
        else streamable_http_client(server["url"])
    )
    async with (
        transport as (read, write, *_),
        ClientSession(
            read, write, elicitation_callback=ask, logging_callback=log, message_handler=message
        ) as client,
    ):
        await client.initialize()
        yield Mcp(client, heard)


run(opened)
