"""Work that waits under a sealed state: taken once, in time, and not without bounds."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from toolkeep.limits import MCP_PARKED_SECONDS
from toolkeep.mcp_protocol.jsonrpc import ProtocolError
from toolkeep.mcp_server import request_state
from toolkeep.mcp_server.connection import Connection
from toolkeep.mcp_server.detached_requests import DetachedRequest
from toolkeep.mcp_server.request_state import RequestStates


async def for_ever() -> None:
    await asyncio.Event().wait()


def waiting(agent: str = "a") -> DetachedRequest:
    running = DetachedRequest(Connection(agent, is_modern=True), lambda _: None, {})
    running.start(for_ever())
    return running


def run(act: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(act)


def test_a_state_is_taken_once_also_while_its_work_goes_on() -> None:
    async def act() -> None:
        held = RequestStates()
        running = waiting()
        state = held.put(running, b"same")
        assert held.take(state, b"same") is running
        with pytest.raises(ProtocolError, match="used or is over"):
            held.take(state, b"same")

    run(act())


def test_a_state_ends() -> None:
    now = [1000.0]

    async def act() -> None:
        held = RequestStates(clock=lambda: now[0])
        state = held.put(waiting(), b"")
        now[0] += MCP_PARKED_SECONDS
        with pytest.raises(ProtocolError, match="used or is over"):
            held.take(state, b"")

    run(act())


def test_work_that_nobody_comes_back_for_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_state, "MCP_PARKED_SECONDS", 0)

    async def act() -> bool:
        held, running = RequestStates(), waiting()
        held.put(running, b"")
        await asyncio.wait({running.task}, timeout=60)
        return running.task.cancelled() and not len(held)

    assert run(act())


def test_no_more_work_waits_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_state, "MCP_PARKED", 1)

    async def act() -> None:
        held, second = RequestStates(), waiting()
        held.put(waiting(), b"")
        with pytest.raises(ProtocolError, match="Too many"):
            held.put(second, b"")
        await asyncio.wait({second.task}, timeout=60)
        assert second.task.cancelled()

    run(act())


def test_an_agent_whose_work_waits_keeps_no_other_from_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_state, "MCP_AGENT_PARKED", 2)

    async def act() -> int:
        held = RequestStates()
        held.put(waiting("a"), b"")
        held.put(waiting("a"), b"")
        with pytest.raises(ProtocolError, match="Too many"):
            held.put(waiting("a"), b"")
        held.put(waiting("b"), b"")
        return len(held)

    assert run(act()) == 3
