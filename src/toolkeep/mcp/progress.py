"""How a tool's progress reaches the client: under the token of the request that waits for the tool now.

A call that asked its client goes on for another request, which has a token of its own, or none.
"""

import math
from typing import Any

from toolkeep.mcp.connection import Emit
from toolkeep.wire.messages import Id, Message, is_id, notification


class Progress:
    """Tells one client, only ever forwards; tools call it in threads of theirs."""

    def __init__(self, message: Message, emit: Emit) -> None:
        token = message.meta.get("progressToken")
        self.to: tuple[Id, Emit] | None = (token, emit) if is_id(token) else None
        """Under which token, and by which way; None where nobody wants to hear."""
        self._furthest = -math.inf

    def go_on_for(self, other: "Progress | None") -> None:
        """Tell as another request asked for it; None while there is none."""
        self.to = None if other is None else other.to

    def __call__(self, done: float, total: float | None, words: str) -> None:
        """How far the tool has come."""
        to = self.to
        if to is None or not self._furthest < done < math.inf:
            return
        self._furthest = done
        token, emit = to
        params: dict[str, Any] = {"progressToken": token, "progress": done}
        params |= {"total": total} if total is not None and math.isfinite(total) else {}
        params |= {"message": words} if words else {}
        emit(notification("notifications/progress", params))
