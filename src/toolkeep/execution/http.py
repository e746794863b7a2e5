"""Runs tools that a server answers: the request is made here, by toolkeep's own code and nobody else's.

The result says `remote`: what runs the tool is elsewhere, and what confines it there is unknown here.
"""

from collections.abc import Callable
from typing import Any, Final

from toolkeep.calls import RecordedCall, RegisteredTool
from toolkeep.definitions.context import ToolContext
from toolkeep.definitions.vocabulary import Isolation
from toolkeep.execution.runner import Held

REMOTE: Final = "remote"


class HttpRunner:
    """Runs what a configuration, or an `HttpSource`, says that a server answers."""

    def runs(self, tool: RegisteredTool) -> bool:
        """Whether it is an HTTP tool that asks for no isolation: nobody here could give it any."""
        is_http = getattr(tool.runner, "kind", "") == "http"
        return is_http and tool.definition.constraints.required_isolation in (None, Isolation.NONE)

    def isolation(self, tool: RegisteredTool) -> str:
        """That it is run elsewhere."""
        return REMOTE

    def enforced(self, tool: RegisteredTool) -> tuple[str, ...]:
        """No mechanism of the kernel: nothing of the tool runs here."""
        return ()

    async def run(self, call: RecordedCall, context: Callable[[], ToolContext], slot: Held) -> Any:
        """What the server answers."""
        from toolkeep.execution.remote import ask  # with it come TLS and HTTP, which most keeps never need

        return await ask(call, context())
