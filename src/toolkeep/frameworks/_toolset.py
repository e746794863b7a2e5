"""The tools of a keep for a framework: those that an agent may see, and a way to call them.

The framework gets names, descriptions and schemas. Arguments go to the keep unparsed: the keep alone
validates, authorizes and approves them, and records every call.
"""

import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from toolkeep.calls import ToolResult, Unreadable
from toolkeep.errors import Code
from toolkeep.flow.host_session import Session
from toolkeep.keep.keep import LOCAL_AGENT, Keep
from toolkeep.limits import BATCH_CALLS
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
        self._running = 0
        self._response = ""

    @contextlib.contextmanager
    def _response_of_call(self) -> Iterator[str]:
        """An id for the model's response that a call is part of.

        Frameworks name none; they run the calls of a response at the same time.
        """
        if not self._running:
            self._response = secrets.token_hex(8)
        self._running += 1
        try:
            yield self._response
        finally:
            self._running -= 1

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
        with self._response_of_call() as response:
            return self._reply(tool, await self.keep.call(tool, arguments, response=response, **options))

    async def call_all(self, calls: Sequence[tuple[str, Arguments, str]]) -> list[Reply]:
        """Make the calls of one response, each a tool, its arguments and the model's id of the call."""
        made = [
            {"name": tool, "arguments": arguments, **self._who, "correlation_id": call_id}
            for tool, arguments, call_id in calls
        ]
        found: list[Reply] = []
        for start in range(0, len(made), BATCH_CALLS):
            results = await self.keep.call_all(made[start : start + BATCH_CALLS])
            found += [self._reply(calls[start + at][0], result) for at, result in enumerate(results)]
        return found

    def call_sync(self, tool: str, arguments: Arguments) -> Reply:
        """Like `call`, for code without an event loop."""
        with self._response_of_call() as response:
            return self._reply(tool, self.keep.call_sync(tool, arguments, response=response, **self._who))

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
