"""Suspended work that waits for the client's answers, under a sealed `requestState` (2026-07-28).

The state holds an id, an expiry time and the server that holds the work. An HMAC binds it to the agent and to
the identical request, under a key of this process or of the servers that share a database. It can be used
once. Work that is not resumed in time is cancelled.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from toolkeep.limits import MCP_AGENT_PARKED, MCP_PARKED, MCP_PARKED_SECONDS
from toolkeep.mcp_protocol.jsonrpc import INVALID_PARAMS, OVERLOADED, ProtocolError
from toolkeep.mcp_server.detached_requests import DetachedRequest

if TYPE_CHECKING:
    from toolkeep.storage.postgres.peers import Peers


class HeldElsewhere(Exception):
    """Another server holds the work of a state."""

    def __init__(self, server: str) -> None:
        super().__init__(server)
        self.server = server


class RequestStates:
    """The suspended work of one server."""

    def __init__(self, clock: Callable[[], float] = time.time, peers: "Peers | None" = None) -> None:
        """`peers` are the other servers that share the database."""
        self._clock = clock
        self._peers = peers
        # Made per process and never stored: a state of an earlier process names work that no longer exists.
        self._key = secrets.token_bytes(32) if peers is None else peers.secret
        self._waiting: dict[str, tuple[DetachedRequest, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, running: DetachedRequest, bound: bytes) -> str:
        """Suspend work and return its state; `bound` is what the resuming request must have in common."""
        if not self._has_room(running.agent):
            running.cancel()
            raise ProtocolError(OVERLOADED, "Too many requests wait for answers")
        name = secrets.token_hex(16)
        ends = int(self._clock() + MCP_PARKED_SECONDS)
        timer = asyncio.get_running_loop().call_later(MCP_PARKED_SECONDS, self._expire, name)
        self._waiting[name] = (running, timer)
        running.task.add_done_callback(lambda _: self._forget(name))
        text = f"{name}.{ends}"
        if self._peers is not None:
            self._peers.attend()
            text = f"{text}.{self._peers.server}"
        return f"{text}.{self._seal(text, bound)}"

    def take(self, state: object, bound: bytes) -> DetachedRequest:
        """Resume the work of a state, once; raises if it is forged, for another request, or expired.

        Raises `HeldElsewhere` if another server holds the work.
        """
        text, _, seal = state.rpartition(".") if isinstance(state, str) else ("", "", "")
        # Constant time: a comparison that stops at the first difference would let a client find a valid seal
        # byte by byte. Checked before the id is looked up, so that unknown ids cannot be probed.
        if not hmac.compare_digest(seal.encode(), self._seal(text, bound).encode()):
            raise ProtocolError(INVALID_PARAMS, "requestState is not one that was given for this request")
        name, ends, *home = text.split(".")
        if self._peers is not None and home[0] != self._peers.server:
            raise HeldElsewhere(home[0])
        found = self._waiting.pop(name, None)
        if found is None or int(ends) <= self._clock():
            raise ProtocolError(INVALID_PARAMS, "requestState was used or is over; begin again without it")
        running, timer = found
        timer.cancel()
        return running

    def close(self) -> None:
        """Cancel all suspended work."""
        for running, timer in list(self._waiting.values()):
            timer.cancel()
            running.cancel()
        self._waiting.clear()

    def _has_room(self, agent: str) -> bool:
        # A limit per agent besides the total: one agent must not take all places from the others.
        own = sum(running.agent == agent for running, _ in self._waiting.values())
        return own < MCP_AGENT_PARKED and len(self._waiting) < MCP_PARKED

    def _seal(self, text: str, bound: bytes) -> str:
        """HMAC of state and bound request: without `bound`, one call's state would resume another call."""
        return hmac.new(self._key, text.encode() + b"\0" + bound, hashlib.sha256).hexdigest()

    def _expire(self, name: str) -> None:
        found = self._waiting.pop(name, None)
        if found is not None:
            found[0].cancel()

    def _forget(self, name: str) -> None:
        found = self._waiting.pop(name, None)
        if found is not None:
            found[1].cancel()
