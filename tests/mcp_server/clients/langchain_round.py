"""langchain's MCP adapters; a call is answered with the message that a model is sent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from langchain_mcp_adapters.callbacks import (  # type: ignore[import-not-found, unused-ignore]
    Callbacks,
)
from langchain_mcp_adapters.client import (  # type: ignore[import-not-found, unused-ignore]
    MultiServerMCPClient,
)
from mcp.types import ElicitResult  # type: ignore[import-not-found, unused-ignore]

from tests.mcp_server.clients.steps import Heard, Server, Session, run


class Langchain(Session):
    def __init__(self, client: Any) -> None:
        self._client = client

    async def tools(self) -> list[str]:
        return [tool.name for tool in await self._client.get_tools()]

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        (tool,) = (tool for tool in await self._client.get_tools() if tool.name == name)
        message = await tool.ainvoke({"type": "tool_call", "id": "1", "name": name, "args": arguments})
        return {"text": message.content[0]["text"], "is_error": message.status == "error"}

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        messages = await self._client.get_prompt("keep", name, arguments=arguments)
        return str(messages[0].content)

    async def resource(self, uri: str) -> str:
        (blob,) = await self._client.get_resources("keep", uris=uri)
        return str(blob.as_string())


@asynccontextmanager
async def opened(server: Server, heard: Heard) -> AsyncIterator[Session]:
    async def ask(_: Any, params: Any, __: Any) -> Any:
        return ElicitResult(action="accept", content=heard.answer(params.message))

    async def log(params: Any, _: Any) -> None:
        heard.notices.append(f"log: {params.data}")

    async def progress(_: float, __: float | None, message: str | None, ___: Any) -> None:
        heard.notices.append(f"progress: {message}")

    words = server.get("command")
    where = (
        {"transport": "stdio", "command": words[0], "args": words[1:]}
        if words
        else {"transport": "streamable_http", "url": server["url"]}
    )
    callbacks = Callbacks(on_elicitation=ask, on_logging_message=log, on_progress=progress)
    yield Langchain(MultiServerMCPClient({"keep": where}, callbacks=callbacks))


run(opened)
