"""What seconds of the same rounds say: growth with the number of tools, ratios to others at the same size."""

from collections.abc import Mapping
from dataclasses import dataclass

from measures.statistics import median, median_ratio

Seconds = Mapping[tuple[str, int], list[float]]
"""Of one call, round by round, by line and number of tools; of a listing, by the tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One line at one size. All ratios are medians of the ratios within a round."""

    seconds: float
    growth: float
    """To itself at the smallest size."""
    to_toolkeep: float | None
    """To toolkeep with functions at the same size."""
    to_dict: float | None
    """To a dict of the same size."""


def compare(seconds: Seconds) -> dict[tuple[str, int], Comparison]:
    """Every line and size that was measured."""
    smallest = min(size for _, size in seconds)
    return {
        (line, size): Comparison(
            seconds=median(mine),
            growth=median_ratio(mine, seconds[line, smallest]),
            to_toolkeep=_ratio(mine, seconds.get(("toolkeep", size))),
            to_dict=_ratio(mine, seconds.get(("dict", size))),
        )
        for (line, size), mine in seconds.items()
    }


def _ratio(mine: list[float], others: list[float] | None) -> float | None:
    return None if others is None else median_ratio(mine, others)
