"""Calls that run a tool: how long each takes alone, and how many a second with many callers at once.

Every round gives each lane a batch, another one first each time, and waits until the process is quiet before
the next: what a framework leaves to threads of its own counts as its processor time, and slows nobody else.
"""

import asyncio
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from measures.statistics import median, median_ratio, percentile
from rivals.caller import Made, Prepare

ALONE_S = 0.05
TOGETHER_S = 0.2
QUIET_S = 0.15
"""So long the process must take next to no time of the processor: longer than a checkpoint may wait."""
_WINDOW_S = 0.01
_NEXT_TO_NONE = 0.06
_PATIENCE_S = 30.0

_numbers = itertools.count(1)
"""No two calls of a run have the same number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """One call after the other."""

    batches: list[list[float]] = field(default_factory=list)
    """The seconds of every call, round by round."""
    processor: list[float] = field(default_factory=list)
    """Seconds of the processor for a call, in all threads, until the process is quiet again."""

    @property
    def medians(self) -> list[float]:
        """The middle call of every round."""
        return [median(batch) for batch in self.batches]

    @property
    def p99(self) -> float:
        """Of all calls."""
        return percentile(list(itertools.chain.from_iterable(self.batches)), 0.99)

    def ratio(self, other: "Alone") -> float:
        """The middle of the ratios within a round."""
        return median_ratio(self.medians, other.medians)


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Many callers, each with one call after the other."""

    rates: list[float] = field(default_factory=list)
    """Calls a second, round by round."""
    processor: list[float] = field(default_factory=list)

    def ratio(self, other: "Together") -> float:
        """The middle of the ratios within a round."""
        return median_ratio(self.rates, other.rates)


async def time_alone(lanes: Mapping[str, Prepare], *, rounds: int) -> dict[str, Alone]:
    """Each lane's calls, one after the other."""
    counts = {name: await _count(prepare) for name, prepare in lanes.items()}
    found = {name: Alone() for name in lanes}
    for name in _in_turn(list(lanes), rounds):
        calls = _prepare(lanes[name], counts[name])
        before = time.process_time()
        found[name].batches.append([await _seconds(call) for call in calls])
        await _quiet()
        found[name].processor.append((time.process_time() - before) / len(calls))
    return found


async def time_together(lanes: Mapping[str, Prepare], *, callers: int, rounds: int) -> dict[str, Together]:
    """Each lane's calls from many callers at once."""
    counts = {name: await _count_together(prepare, callers) for name, prepare in lanes.items()}
    found = {name: Together() for name in lanes}
    for name in _in_turn(list(lanes), rounds):
        calls = _prepare(lanes[name], counts[name])
        before = time.process_time()
        found[name].rates.append(await _rate(calls, callers))
        await _quiet()
        found[name].processor.append((time.process_time() - before) / len(calls))
    return found


def _in_turn(names: Sequence[str], rounds: int) -> list[str]:
    return [names[(place + number) % len(names)] for number in range(rounds) for place in range(len(names))]


def _prepare(prepare: Prepare, count: int) -> list[Made]:
    return [prepare(next(_numbers)) for _ in range(count)]


async def _count(prepare: Prepare) -> int:
    """How many calls make a batch."""
    warm = [await _seconds(call) for call in _prepare(prepare, 20)]
    await _quiet()
    return max(8, round(ALONE_S / median(warm)))


async def _count_together(prepare: Prepare, callers: int) -> int:
    rate = await _rate(_prepare(prepare, 4 * callers), callers)
    await _quiet()
    return max(2 * callers, round(rate * TOGETHER_S))


async def _seconds(call: Made) -> float:
    start = time.perf_counter()
    await call()
    return time.perf_counter() - start


async def _rate(calls: Sequence[Made], callers: int) -> float:
    waiting = iter(calls)

    async def caller() -> None:
        for call in waiting:
            await call()

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())
    return len(calls) / (time.perf_counter() - start)


async def _quiet() -> None:
    """Wait until no thread of this process works any more."""
    give_up = time.monotonic() + _PATIENCE_S
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < QUIET_S:
        before = time.process_time()
        await asyncio.sleep(_WINDOW_S)
        if time.process_time() - before > _NEXT_TO_NONE * _WINDOW_S:
            quiet_since = time.monotonic()
        if quiet_since > give_up:
            raise RuntimeError(f"the process is still busy after {_PATIENCE_S:g} s")
