"""google-adk's MCP toolset: an agent whose model makes one call and notes what it is told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from google.adk.agents import LlmAgent  # type: ignore[import-not-found, unused-ignore]
from google.adk.models import BaseLlm, LlmResponse  # type: ignore[import-not-found, unused-ignore]
from google.adk.runners import InMemoryRunner  # type: ignore[import-not-found, unused-ignore]
from google.adk.tools.mcp_tool import (  # type: ignore[import-not-found, unused-ignore]
    McpToolset,
    StdioConnectionParams,
    StreamableHTTPConnectionParams,
)
from google.genai import types  # type: ignore[import-not-found, unused-ignore]
from mcp import StdioServerParameters  # type: ignore[import-not-found, unused-ignore]
from mcp_types import ElicitResult  # type: ignore[import-not-found, unused-ignore]

from tests.mcp_server.clients.steps import Heard, Server, Session, run


class OneCall(BaseLlm):  # type: ignore[misc, unused-ignore]
    """A model that makes one call."""

    name: str
    arguments: dict[str, Any]
    told: list[Any]

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[Any]:
        parts = llm_request.contents[-1].parts
        self.told.extend(part.function_response.response for part in parts if part.function_response)
        made = types.Part.from_function_call(name=self.name, args=self.arguments)
        part = types.Part(text="done") if self.told else made
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


class GoogleAdk(Session):
    def __init__(self, toolset: Any) -> None:
        self._toolset = toolset

    async def tools(self) -> list[str]:
        return [tool.name for tool in await self._toolset.get_tools()]

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        model = OneCall(model="scripted", name=name, arguments=arguments, told=[])
        runner = InMemoryRunner(LlmAgent(name="a", model=model, tools=[self._toolset]), app_name="a")
        session = await runner.session_service.create_session(app_name="a", user_id="u")
        go = types.Content(role="user", parts=[types.Part(text="Go.")])
        async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=go):
            pass
        (said,) = model.told
        text = said["content"][0]["text"] if "content" in said else str(said)
        return {"text": text, "is_error": bool(said.get("isError"))}

    async def resource(self, uri: str) -> str:
        name = uri.rpartition("/")[2]  # the library takes names
        return str((await self._toolset.read_resource(name))[0].text)


@asynccontextmanager
async def opened(server: Server, heard: Heard) -> AsyncIterator[Session]:
    async def ask(_: Any, params: Any) -> Any:
        return ElicitResult(action="accept", content=heard.answer(params.message))

    async def progress(_: float, __: float | None, message: str | None) -> None:
        heard.notices.append(f"progress: {message}")

    words = server.get("command")
    where = (
        StdioConnectionParams(
            server_params=StdioServerParameters(command=words[0], args=words[1:]), timeout=60
        )
        if words
        else StreamableHTTPConnectionParams(url=server["url"], timeout=60)
    )
    toolset = McpToolset(connection_params=where, progress_callback=progress, elicitation_callback=ask)
    yield GoogleAdk(toolset)
    await toolset.close()


run(opened)
