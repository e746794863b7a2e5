"""A moment that is moved on is not missed, and one that is cleared never comes."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from toolkeep.mcp_server.uvicorn_protocol import Deadline


class Clock:
    """A loop's timers, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None], asyncio.TimerHandle]] = []
        self.made = 0

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, act: Callable[[], None]) -> Any:
        self.made += 1
        handle = _Handle()
        self.timers.append((at, act, handle))  # type: ignore[arg-type]
        return handle

    def move(self, seconds: float) -> None:
        self.now += seconds
        due = [one for one in self.timers if one[0] <= self.now]
        self.timers = [one for one in self.timers if one[0] > self.now]
        for _, act, handle in due:
            if not handle.is_cancelled:  # type: ignore[attr-defined]
                act()


class _Handle:
    is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def passed() -> list[float]:
    return []


@pytest.fixture
def deadline(clock: Clock, passed: list[float]) -> Deadline:
    return Deadline(clock, lambda: passed.append(clock.now))  # type: ignore[arg-type]


def test_it_passes_once(clock: Clock, deadline: Deadline, passed: list[float]) -> None:
    deadline.set(5)
    clock.move(4)
    assert not passed
    clock.move(1)
    clock.move(100)
    assert passed == [5]


def test_moved_on_it_passes_later(clock: Clock, deadline: Deadline, passed: list[float]) -> None:
    deadline.set(5)
    clock.move(4)
    deadline.set(5)
    clock.move(1)
    assert not passed
    clock.move(4)
    assert passed == [9]


def test_moved_back_it_passes_earlier(clock: Clock, deadline: Deadline, passed: list[float]) -> None:
    deadline.set(20)
    deadline.set(5)
    clock.move(5)
    assert passed == [5]
    clock.move(100)
    assert passed == [5]


@pytest.mark.parametrize("end", [Deadline.clear, Deadline.close])
def test_one_that_is_taken_back_never_passes(
    clock: Clock, deadline: Deadline, passed: list[float], end: Callable[[Deadline], None]
) -> None:
    deadline.set(5)
    end(deadline)
    clock.move(100)
    assert not passed


def test_after_one_that_was_taken_back_another_counts(
    clock: Clock, deadline: Deadline, passed: list[float]
) -> None:
    deadline.set(5)
    deadline.clear()
    clock.move(100)
    deadline.set(5)
    clock.move(5)
    assert passed == [105]


def test_moving_it_on_makes_no_timers(clock: Clock, deadline: Deadline) -> None:
    for _ in range(1000):
        deadline.set(5)
        deadline.clear()
    assert clock.made == 1
