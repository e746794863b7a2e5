"""Progress notifications, under the progress token of the request that currently waits for the tool.

A call that asked its client continues for another request, which has its own token or none.
"""

import math
from typing import Any

from toolkeep.mcp_protocol.jsonrpc import Id, Message, is_id, notification
from toolkeep.mcp_server.connection import Emit

_NOTE_STEP = 1e-6
"""Progress must increase with each notification. Notes hardly move it, for the tool's own must count."""


class Progress:
    """Sends progress that only increases, as MCP requires; tools call it from their own threads."""

    def __init__(self, message: Message, emit: Emit) -> None:
        token = message.meta.get("progressToken")
        self.to: tuple[Id, Emit] | None = (token, emit) if is_id(token) else None
        """Progress token and transport; None if the request asked for no progress."""
        self._furthest = -math.inf

    def go_on_for(self, other: "Progress | None") -> None:
        """Use the progress token of another request; None while there is none."""
        self.to = None if other is None else other.to

    def __call__(self, done: float, total: float | None, words: str) -> None:
        """Send the progress of the tool."""
        to = self.to
        if to is None or not self._furthest < done < math.inf:
            return
        self._send(to, done, total, words)

    def note(self, words: str) -> bool:
        """Send words without progress of the tool; False if the request asked for no progress."""
        to = self.to
        if to is not None:
            self._send(to, max(0.0, self._furthest + _NOTE_STEP), None, words)
        return to is not None

    def _send(self, to: tuple[Id, Emit], done: float, total: float | None, words: str) -> None:
        self._furthest = done
        token, emit = to
        params: dict[str, Any] = {"progressToken": token, "progress": done}
        params |= {"total": total} if total is not None and math.isfinite(total) else {}
        params |= {"message": words} if words else {}
        emit(notification("notifications/progress", params))
