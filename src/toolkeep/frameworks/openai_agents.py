"""The tools of a keep for the OpenAI Agents SDK.

    agent = Agent(name="writer", tools=agents_tools(keep, agent="writer"))

A refused or failed call comes back as text that begins with a fixed line; nothing is raised into the run.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from toolkeep.errors import ExtraMissing
from toolkeep.flow.host_session import Session
from toolkeep.frameworks._toolset import Offered, unfinished, written
from toolkeep.keep.keep import LOCAL_AGENT, Keep
from toolkeep.providers.replies import Blob, Reply

try:
    from agents import (  # type: ignore[import-not-found, unused-ignore]
        FunctionTool,
        ToolOutputFileContent,
        ToolOutputImage,
        ToolOutputText,
    )
except ImportError as missing:
    raise ExtraMissing(
        "the adapter for OpenAI Agents", package="openai-agents", extra="openai-agents"
    ) from missing

__all__ = ["agents_tools"]

Invoke = Callable[[Any, str], Awaitable[Any]]


def agents_tools(
    keep: Keep,
    *,
    agent: str = LOCAL_AGENT,
    session: str | Session = "",
    conversation: str = "",
    data: Mapping[str, Any] | None = None,
) -> "list[FunctionTool]":
    """The tools that an agent may see; `data` is the per-call data of every call."""
    offered = Offered(keep, agent=agent, session=session, conversation=conversation, data=data)
    return [
        FunctionTool(
            name=offer.name,
            description=offer.description,
            params_json_schema=offer.schema,
            on_invoke_tool=_caller(offered, offer.tool),
            strict_json_schema=False,
        )
        for offer in offered.tools()
    ]


def _caller(offered: Offered, tool: str) -> Invoke:
    async def invoke(context: Any, text: str) -> Any:
        status = getattr(getattr(context, "tool_call", None), "status", None)
        is_whole = status in (None, "completed")
        arguments = written(text) if is_whole else unfinished(f"its status is {status}")
        call_id = str(getattr(context, "tool_call_id", None) or "")
        return _output(await offered.call(tool, arguments, call_id=call_id))

    return invoke


def _output(reply: Reply) -> Any:
    if not reply.blobs:
        return reply.flagged_text
    return [ToolOutputText(text=reply.flagged_text), *map(_part, reply.blobs)]


def _part(blob: Blob) -> Any:
    if blob.is_image:
        return ToolOutputImage(image_url=blob.url)
    return ToolOutputFileContent(file_data=blob.url, filename=f"output.{blob.mime_type.rpartition('/')[2]}")
