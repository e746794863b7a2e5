"""Timing side by side: every round times a batch of each runner in turn.

A noisy machine slows all runners of a round alike, so that the ratio within a round says more than a time.
"""

import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from measures.statistics import median, percentile

BATCH_S = 0.002

Batch = Callable[[int], float]
"""Repeats something so many times; the seconds that took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """A statement to time, with the names that it uses."""

    name: str
    statement: str
    names: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What one runner took, and how that compares with the yardstick in the same round."""

    name: str
    microseconds: float
    ratio: float
    ratio_p10: float
    ratio_p90: float


def time_interleaved(yardstick: Runner, runners: Sequence[Runner], *, rounds: int) -> list[Timing]:
    """The yardstick first, then the runners in their order."""
    everyone = [yardstick, *runners]
    batches = [timeit.Timer(runner.statement, globals=dict(runner.names)).timeit for runner in everyone]
    seconds = seconds_interleaved(batches, rounds=rounds)
    return [_timing(runner, mine, seconds[0]) for runner, mine in zip(everyone, seconds, strict=True)]


def seconds_interleaved(batches: Sequence[Batch], *, rounds: int) -> list[list[float]]:
    """For each batch the seconds of one repetition, round by round."""
    repeats = [_repeats(batch) for batch in batches]
    seconds: list[list[float]] = [[] for _ in batches]
    for number in range(rounds):
        for place in range(len(batches)):
            # Another one goes first each round, so that no place in the row is anybody's advantage.
            who = (place + number) % len(batches)
            seconds[who].append(batches[who](repeats[who]) / repeats[who])
    return seconds


def _repeats(batch: Batch) -> int:
    batch(3)
    best = min(batch(1) for _ in range(5))
    return max(1, round(BATCH_S / best))


def _timing(runner: Runner, seconds: Sequence[float], yardstick: Sequence[float]) -> Timing:
    ratios = [mine / theirs for mine, theirs in zip(seconds, yardstick, strict=True)]
    return Timing(
        name=runner.name,
        microseconds=median(seconds) * 1e6,
        ratio=median(ratios),
        ratio_p10=percentile(ratios, 0.1),
        ratio_p90=percentile(ratios, 0.9),
    )
