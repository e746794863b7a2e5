"""Medians and percentiles."""

from collections.abc import Sequence


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which that part of the values lies (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(part * (len(ordered) - 1)))]


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return percentile(values, 0.5)


def median_ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """The middle of the ratios within a round."""
    return median([value / other for value, other in zip(values, others, strict=True)])
