"""A keep as a toolset of pydantic-ai.

    agent = Agent(model, toolsets=[KeepToolset(keep, agent="writer")])

A refused or failed call reaches the model as a failed one, with the keep's text. pydantic-ai checks nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from toolkeep.errors import ExtraMissing
from toolkeep.flow.host_session import Session
from toolkeep.frameworks._toolset import Offered, unfinished, written
from toolkeep.keep.keep import LOCAL_AGENT, Keep
from toolkeep.validation.validate import Arguments

try:
    from pydantic_ai import BinaryContent, RunContext  # type: ignore[import-not-found, unused-ignore]
    from pydantic_ai.exceptions import ToolFailed  # type: ignore[import-not-found, unused-ignore]
    from pydantic_ai.messages import ModelResponse  # type: ignore[import-not-found, unused-ignore]
    from pydantic_ai.tools import ToolDefinition  # type: ignore[import-not-found, unused-ignore]
    from pydantic_ai.toolsets import (  # type: ignore[import-not-found, unused-ignore]
        AbstractToolset,
        ToolsetTool,
    )
except ImportError as missing:
    raise ExtraMissing(
        "the adapter for pydantic-ai", package="pydantic-ai-slim", extra="pydantic-ai"
    ) from missing

__all__ = ["KeepToolset"]

_RAW: Final = "written"
_FINISHED: Final = ("stop", "tool_call", None)


class _Unread:
    """Passes arguments through unparsed: the keep validates them."""

    def validate_json(self, given: str | bytes | bytearray, **_: Any) -> dict[str, Any]:
        """Pass the text through."""
        return {_RAW: given}

    def validate_python(self, given: Any, **_: Any) -> dict[str, Any]:
        """Pass the data through."""
        return {_RAW: given}


class KeepToolset(AbstractToolset[Any]):  # type: ignore[misc, unused-ignore]
    """The tools of a keep that an agent may see."""

    def __init__(
        self,
        keep: Keep,
        *,
        agent: str = LOCAL_AGENT,
        session: str | Session = "",
        conversation: str = "",
        data: "Mapping[str, Any] | Callable[[RunContext[Any]], Mapping[str, Any]] | None" = None,
        toolset_id: str | None = None,
    ) -> None:
        """`data` is the per-call data, or a function that makes it from the context of the run."""
        fixed = None if callable(data) else data
        self._offered = Offered(keep, agent=agent, session=session, conversation=conversation, data=fixed)
        self._data = data if callable(data) else None
        self._id = toolset_id

    @property
    def id(self) -> str | None:
        """Its id in durable runs."""
        return self._id

    async def get_tools(self, ctx: "RunContext[Any]") -> "dict[str, ToolsetTool[Any]]":  # noqa: ARG002 -- its face
        """Return the tools by name."""
        return {
            offer.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=offer.name,
                    description=offer.description,
                    parameters_json_schema=offer.schema,
                    strict=False,
                    metadata={"toolkeep": offer.tool},
                ),
                max_retries=1,
                args_validator=_Unread(),
            )
            for offer in self._offered.tools()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: "RunContext[Any]", tool: "ToolsetTool[Any]"
    ) -> Any:
        """Make the call; raises pydantic-ai's `ToolFailed` if it is refused or fails."""
        own = (tool.tool_def.metadata or {}).get("toolkeep", name)
        data = self._data(ctx) if self._data is not None else None
        call_id = str(ctx.tool_call_id or "")
        reply = await self._offered.call(own, _arguments(tool_args, ctx), call_id=call_id, data=data)
        if reply.is_error:
            raise ToolFailed(reply.text)
        if reply.blobs:
            return [
                reply.text,
                *(BinaryContent(blob.data, media_type=blob.mime_type) for blob in reply.blobs),
            ]
        result = reply.result
        if result is None or result.status != "ok" or reply.text != result.text:
            return reply.text
        return result.view


def _arguments(given: dict[str, Any], ctx: "RunContext[Any]") -> Arguments:
    if why := _cut(ctx):
        return unfinished(why)
    raw = given.get(_RAW, given)
    return written(raw) if isinstance(raw, str) else raw


def _cut(ctx: "RunContext[Any]") -> str:
    """Why the response that holds the call was truncated; empty if it was not."""
    for message in reversed(ctx.messages or []):
        if isinstance(message, ModelResponse):
            if getattr(message, "state", "complete") != "complete":
                return "the response is not complete"
            reason = message.finish_reason
            return "" if reason in _FINISHED else f"the response stopped with '{reason}'"
    return ""
