"""Work that waits under a sealed state: taken once, in time, and not without bounds."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from toolkeep.limits import MCP_PARKED_SECONDS
from toolkeep.mcp import parked
from toolkeep.mcp.connection import Connection
from toolkeep.mcp.parked import Parked
from toolkeep.mcp.running import Running
from toolkeep.wire.messages import ProtocolError


async def for_ever() -> None:
    await asyncio.Event().wait()


def waiting(agent: str = "a") -> Running:
    running = Running(Connection(agent, is_modern=True), lambda _: None, {})
    running.start(for_ever())
    return running


def run(act: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(act)


def test_a_state_is_taken_once_also_while_its_work_goes_on() -> None:
    async def act() -> None:
        held = Parked()
        running = waiting()
        state = held.put(running, b"same")
        assert held.take(state, b"same") is running
        with pytest.raises(ProtocolError, match="used or is over"):
            held.take(state, b"same")

    run(act())


def test_a_state_ends() -> None:
    now = [1000.0]

    async def act() -> None:
        held = Parked(clock=lambda: now[0])
        state = held.put(waiting(), b"")
        now[0] += MCP_PARKED_SECONDS
        with pytest.raises(ProtocolError, match="used or is over"):
            held.take(state, b"")

    run(act())


def test_work_that_nobody_comes_back_for_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parked, "MCP_PARKED_SECONDS", 0)

    async def act() -> bool:
        held, running = Parked(), waiting()
        held.put(running, b"")
        await asyncio.wait({running.task}, timeout=5)
        return running.task.cancelled() and not len(held)

    assert run(act())


def test_no_more_work_waits_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parked, "MCP_PARKED", 1)

    async def act() -> None:
        held, second = Parked(), waiting()
        held.put(waiting(), b"")
        with pytest.raises(ProtocolError, match="Too many"):
            held.put(second, b"")
        await asyncio.wait({second.task}, timeout=5)
        assert second.task.cancelled()

    run(act())


def test_an_agent_whose_work_waits_keeps_no_other_from_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parked, "MCP_AGENT_PARKED", 2)

    async def act() -> int:
        held = Parked()
        held.put(waiting("a"), b"")
        held.put(waiting("a"), b"")
        with pytest.raises(ProtocolError, match="Too many"):
            held.put(waiting("a"), b"")
        held.put(waiting("b"), b"")
        return len(held)

    assert run(act()) == 3
