"""mcp 2: the official client; the second argument is the era, `legacy` or `auto`."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client  # type: ignore[import-not-found, unused-ignore]
from mcp.client.stdio import StdioServerParameters  # type: ignore[import-not-found, unused-ignore]
from mcp_types import ElicitResult  # type: ignore[import-not-found, unused-ignore]

from tests.mcp_server.clients.steps import Heard, Server, Session, run

MODE = sys.argv[2]


class Mcp(Session):
    def __init__(self, client: Any, heard: Heard) -> None:
        self._client = client
        self._heard = heard

    async def tools(self) -> list[str]:
        return [tool.name for tool in (await self._client.list_tools()).tools]

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result = await self._client.call_tool(name, arguments, progress_callback=self._progress)
        return {"text": result.content[0].text, "is_error": result.is_error}

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        return str((await self._client.get_prompt(name, arguments)).messages[0].content.text)

    async def resource(self, uri: str) -> str:
        return str((await self._client.read_resource(uri)).contents[0].text)

    async def _progress(self, _: float, __: float | None, message: str | None) -> None:
        self._heard.notices.append(f"progress: {message}")

    async def listen(self) -> None:
        """Only 2026-07-28 needs it: earlier versions push changes."""
        async with self._client.listen(tools_list_changed=True) as changes:
            async for change in changes:
                self._heard.changes.append(str(change))


@asynccontextmanager
async def opened(server: Server, heard: Heard) -> AsyncIterator[Session]:
    async def ask(_: Any, params: Any) -> Any:
        return ElicitResult(action="accept", content=heard.answer(params.message))

    async def log(params: Any) -> None:
        heard.notices.append(f"log: {params.data}")

    async def message(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            heard.changes.append(message.method)

    words = server.get("command")
    where: Any = StdioServerParameters(command=words[0], args=words[1:]) if words else server["url"]
    async with Client(
        where,
        mode=MODE,
        elicitation_callback=ask,
        logging_callback=log,
        log_level="info",
        message_handler=message,
    ) as client:
        session = Mcp(client, heard)
        if MODE == "legacy":
            yield session
            return
        listening = asyncio.ensure_future(session.listen())
        yield session
        listening.cancel()
        await asyncio.wait([listening])


run(opened)
