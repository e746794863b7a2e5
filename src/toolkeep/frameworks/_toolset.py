"""The tools of a keep for a framework: those that an agent may see, and a way to call them.

The framework gets names, descriptions and schemas. Arguments go to the keep unparsed: the keep alone
validates, authorizes and approves them, and records every call.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from toolkeep.calls import ToolResult, Unreadable
from toolkeep.errors import Code
from toolkeep.flow.host_session import Session
from toolkeep.keep.keep import LOCAL_AGENT, Keep
from toolkeep.providers.model_turn import ModelCall, from_text
from toolkeep.providers.replies import Reply, reply_to
from toolkeep.validation.validate import Arguments


class Offer(msgspec.Struct, frozen=True):
    """One tool as a framework gets it."""

    name: str
    """Its name in the framework."""
    tool: str
    """Its name in the keep."""
    description: str
    schema: dict[str, Any]


class Offered:
    """The tools of a keep for one agent."""

    def __init__(
        self,
        keep: Keep,
        *,
        agent: str = LOCAL_AGENT,
        session: str | Session = "",
        conversation: str = "",
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """Raise TypeError for data that is no mapping: each call would be refused for it later."""
        if data is not None and not isinstance(data, Mapping):
            raise TypeError(f"data is a mapping of JSON values, not {type(data).__name__}")
        self.keep = keep
        self._who: Mapping[str, Any] = {
            "agent": agent,
            "session": session,
            "conversation": conversation,
            "data": data,
            "forwarded": True,
        }
        self._agent = agent

    def tools(self) -> list[Offer]:
        """List the tools that the agent may see now."""
        exported = self.keep.tools_for("mcp", agent=self._agent)
        return [
            Offer(one["name"], exported.aliases[one["name"]], one["description"], one["inputSchema"])
            for one in exported
        ]

    async def call(
        self, tool: str, arguments: Arguments, *, call_id: str = "", data: Mapping[str, Any] | None = None
    ) -> Reply:
        """Call a tool of the keep; `call_id` is the model's, `data` replaces that of every call."""
        options = {**self._who, "correlation_id": call_id}
        if data is not None:
            options["data"] = data
        return self._reply(tool, await self.keep.call(tool, arguments, **options))

    def call_sync(self, tool: str, arguments: Arguments) -> Reply:
        """Like `call`, for code without an event loop."""
        return self._reply(tool, self.keep.call_sync(tool, arguments, **self._who))

    def _reply(self, tool: str, result: ToolResult) -> Reply:
        found = self.keep.look_up(tool, agent=self._agent)
        call = ModelCall(id="", name=tool, arguments={})
        return reply_to(call, result, found.definition if found is not None else None)


def unfinished(reason: str) -> Unreadable:
    """Stands in for the arguments of a truncated call, which must not run with what happens to be there."""
    return Unreadable(Code.CALL_UNFINISHED, f"the call was not run: {reason}", "make the whole call again")


def written(text: str) -> Arguments:
    """Parse arguments as the model wrote them."""
    return from_text(text)
