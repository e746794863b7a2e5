"""Work that waits for the client to come back with answers, under a sealed `requestState` (2026-07-28).

The state names the work and when it ends, nothing else. Its seal binds it to the agent and to the very same
request, under a key of this process; it is taken once. What nobody comes back for is cancelled.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable

from toolkeep.limits import MCP_AGENT_PARKED, MCP_PARKED, MCP_PARKED_SECONDS
from toolkeep.mcp.running import Running
from toolkeep.wire.messages import INVALID_PARAMS, OVERLOADED, ProtocolError


class Parked:
    """The work of one server that waits."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._waiting: dict[str, tuple[Running, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, running: Running, bound: bytes) -> str:
        """Park it; the state with which the client comes back. `bound` is what must be the same then."""
        if not self._has_room(running.agent):
            running.cancel()
            raise ProtocolError(OVERLOADED, "Too many requests wait for answers")
        name = secrets.token_hex(16)
        ends = int(self._clock() + MCP_PARKED_SECONDS)
        timer = asyncio.get_running_loop().call_later(MCP_PARKED_SECONDS, self._expire, name)
        self._waiting[name] = (running, timer)
        running.task.add_done_callback(lambda _: self._forget(name))
        text = f"{name}.{ends}"
        return f"{text}.{self._seal(text, bound)}"

    def take(self, state: object, bound: bytes) -> Running:
        """The work under a state, once; raises for a state that is not whole, not this client's, or over."""
        text, _, seal = state.rpartition(".") if isinstance(state, str) else ("", "", "")
        if not hmac.compare_digest(seal.encode(), self._seal(text, bound).encode()):
            raise ProtocolError(INVALID_PARAMS, "requestState is not one that was given for this request")
        name, _, ends = text.partition(".")
        found = self._waiting.pop(name, None)
        if found is None or int(ends) <= self._clock():
            raise ProtocolError(INVALID_PARAMS, "requestState was used or is over; begin again without it")
        running, timer = found
        timer.cancel()
        return running

    def close(self) -> None:
        """End everything that waits."""
        for running, timer in list(self._waiting.values()):
            timer.cancel()
            running.cancel()
        self._waiting.clear()

    def _has_room(self, agent: str) -> bool:
        own = sum(running.agent == agent for running, _ in self._waiting.values())
        return own < MCP_AGENT_PARKED and len(self._waiting) < MCP_PARKED

    def _seal(self, text: str, bound: bytes) -> str:
        return hmac.new(self._key, text.encode() + b"\0" + bound, hashlib.sha256).hexdigest()

    def _expire(self, name: str) -> None:
        found = self._waiting.pop(name, None)
        if found is not None:
            found[0].cancel()

    def _forget(self, name: str) -> None:
        found = self._waiting.pop(name, None)
        if found is not None:
            found[1].cancel()
