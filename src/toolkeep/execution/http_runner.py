"""Runner of HTTP tools: the request is made here, by toolkeep's own code.

Isolation is reported as `remote`: the tool runs elsewhere, and what confines it there is unknown.
"""

from collections.abc import Callable
from typing import Any, Final

from toolkeep.calls import RecordedCall, RegisteredTool
from toolkeep.definitions.tool_context import ToolContext
from toolkeep.definitions.vocabulary import Isolation
from toolkeep.execution.runner import Held

REMOTE: Final = "remote"


class HttpRunner:
    """Runs tools of a configuration or an `HttpSource` that a server answers."""

    def runs(self, tool: RegisteredTool) -> bool:
        """Whether it is an HTTP tool without required isolation: nobody here could provide any."""
        is_http = getattr(tool.runner, "kind", "") == "http"
        return is_http and tool.definition.constraints.required_isolation in (None, Isolation.NONE)

    def isolation(self, tool: RegisteredTool) -> str:
        """`remote`."""
        return REMOTE

    def enforced(self, tool: RegisteredTool) -> tuple[str, ...]:
        """No kernel mechanism: nothing of the tool runs here."""
        return ()

    async def run(self, call: RecordedCall, context: Callable[[], ToolContext], slot: Held) -> Any:
        """The server's answer."""
        from toolkeep.execution.http_call import ask  # Imports TLS and HTTP, which most keeps never need.

        return await ask(call, context())
