"""The tools of a keep for LangChain.

    model.bind_tools(langchain_tools(keep, agent="writer"))

A refused or failed call is a `ToolMessage` with the status `error`. LangChain reads arguments before a tool
sees them, and completes those of a cut stream: `answer_message` takes a model's whole message instead, and
runs none of its calls if it was cut.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final, Literal

from toolkeep.errors import ExtraMissing
from toolkeep.flow.host_session import Session
from toolkeep.frameworks._toolset import Offered, unfinished, written
from toolkeep.keep.keep import LOCAL_AGENT, Keep
from toolkeep.providers.replies import Reply
from toolkeep.validation.validate import Arguments

try:
    from langchain_core.messages import AIMessage, ToolMessage  # type: ignore[import-not-found, unused-ignore]
    from langchain_core.tools import BaseTool, ToolException  # type: ignore[import-not-found, unused-ignore]
    from pydantic import PrivateAttr
except ImportError as missing:
    raise ExtraMissing("the adapter for LangChain", package="langchain-core", extra="langchain") from missing

__all__ = ["KeepTool", "answer_message", "langchain_tools"]

log = logging.getLogger("toolkeep.execution")

_UNSAID: Final = "the message does not say why its model stopped"
_FIELD: Final = (
    "response_metadata={'finish_reason': 'tool_calls'} where your model, such as a fake one, sets none"
)
_REASONS: Final = ("stop_reason", "finish_reason", "stopReason", "done_reason", "status")
_FINISHED: Final = frozenset(
    ("tool_use", "tool_calls", "tool_call", "stop", "STOP", "TOOL_CALL", "function_call", "completed")
)


class KeepTool(BaseTool):  # type: ignore[misc, unused-ignore]
    """One tool of a keep. Made by `langchain_tools`."""

    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = True
    _offered: Offered = PrivateAttr()
    _tool: str = PrivateAttr()

    def __init__(self, offered: Offered, tool: str, **fields: Any) -> None:
        super().__init__(**fields)
        self._offered = offered
        self._tool = tool

    def _run(self, /, **arguments: Any) -> tuple[Any, Any]:
        return _content(self._offered.call_sync(self._tool, arguments))

    async def _arun(self, /, **arguments: Any) -> tuple[Any, Any]:
        return _content(await self._offered.call(self._tool, arguments))


def langchain_tools(
    keep: Keep,
    *,
    agent: str = LOCAL_AGENT,
    session: str | Session = "",
    conversation: str = "",
    data: Mapping[str, Any] | None = None,
) -> list[KeepTool]:
    """The tools that an agent may see; `data` is the per-call data of every call."""
    offered = Offered(keep, agent=agent, session=session, conversation=conversation, data=data)
    return [
        KeepTool(
            offered, offer.tool, name=offer.name, description=offer.description, args_schema=offer.schema
        )
        for offer in offered.tools()
    ]


def _content(reply: Reply) -> tuple[Any, Any]:
    """Content for the model, and the whole result as the artifact."""
    if reply.is_error:
        raise ToolException(reply.text)
    return _blocks(reply), reply.result


def _blocks(reply: Reply) -> str | list[str | dict[str, Any]]:
    images = [blob for blob in reply.blobs if blob.is_image]
    if not images:
        return reply.text
    shown = [{"type": "image", "base64": blob.text, "mime_type": blob.mime_type} for blob in images]
    return [{"type": "text", "text": reply.text}, *shown]


async def answer_message(
    keep: Keep,
    message: "AIMessage",
    *,
    agent: str = LOCAL_AGENT,
    session: str | Session = "",
    conversation: str = "",
    data: Mapping[str, Any] | None = None,
) -> "list[ToolMessage]":
    """Make every call of a model's message and answer each once; a truncated message runs nothing.

    The message must say why its model stopped, as the models of LangChain's integrations do:
    `response_metadata={"finish_reason": "tool_calls"}`. The `artifact` of each answer is the `ToolResult`.
    """
    offered = Offered(keep, agent=agent, session=session, conversation=conversation, data=data)
    names = {offer.name: offer.tool for offer in offered.tools()}
    why = _cut(message)
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    named = [str(call.get("name") or "") for call in calls]
    replies = await offered.call_all(
        [
            (names.get(name, name), unfinished(why) if why else _arguments(call), str(call.get("id") or ""))
            for call, name in zip(calls, named, strict=True)
        ]
    )
    return [
        ToolMessage(
            content=_blocks(reply),
            tool_call_id=str(call.get("id") or ""),
            name=name,
            status="error" if reply.is_error else "success",
            artifact=reply.result,
        )
        for call, name, reply in zip(calls, named, replies, strict=True)
    ]


def _arguments(call: Mapping[str, Any]) -> Arguments:
    given = call.get("args")
    if isinstance(given, dict):
        return given
    return written(given) if isinstance(given, str) else {}


def _cut(message: "AIMessage") -> str:
    """Why the message was truncated; empty if it was not.

    LangChain completes cut JSON: a call with half of its arguments would look whole.
    """
    said = message.response_metadata or {}
    reason = next((said[key] for key in _REASONS if isinstance(said.get(key), str)), None)
    if reason is None:
        log.error("%s, so its calls are refused; set %s", _UNSAID, _FIELD)
        return _UNSAID
    return "" if reason in _FINISHED else f"the response stopped with '{reason}'"
