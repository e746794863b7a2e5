"""What it takes to register tools: time per schema, time for fifty, time to list a thousand."""

import gc
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import toolkeep
from measures.statistics import median
from workloads.real import define

Tools = Sequence[tuple[str, dict[str, Any]]]
"""Descriptions and schemas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """Milliseconds for each tool, and how many were refused, by the kind of error."""

    define_ms: list[float]
    register_ms: list[float]
    refused: Counter[str]


def time_registration(tools: Tools) -> Registration:
    """Define and register every tool by itself. A first pass brings in what is imported on demand, and
    collection is off, so that neither falls on any one tool."""
    _time_each(tools)
    gc.collect()
    gc.disable()
    try:
        return _time_each(tools)
    finally:
        gc.enable()


def _time_each(tools: Tools) -> Registration:
    keep = toolkeep.open_keep()
    result = Registration(define_ms=[], register_ms=[], refused=Counter())
    for number, (description, schema) in enumerate(tools):
        start = time.perf_counter()
        try:
            definition = define(f"tool_{number}", description, schema)
            defined = time.perf_counter()
            keep.register(definition)
        except toolkeep.ToolkeepError as error:
            result.refused[type(error).__name__] += 1
            continue
        end = time.perf_counter()
        result.define_ms.append((defined - start) * 1e3)
        result.register_ms.append((end - defined) * 1e3)
    return result


def keep_with(tools: Tools, count: int) -> toolkeep.Keep:
    """A keep with that many tools, the same ones again under other names where there are too few."""
    keep = toolkeep.open_keep(built_in=False)
    registered = 0
    for number, (description, schema) in enumerate(itertools.cycle(tools)):
        if registered == count:
            break
        try:
            keep.register(define(f"tool_{number}", description, schema))
        except toolkeep.ToolkeepError:
            continue
        registered += 1
    return keep


def time_fifty(tools: Tools, *, rounds: int) -> float:
    """Milliseconds until a keep with fifty tools is ready, everything being imported already."""
    return median([_seconds_for_fifty(tools) for _ in range(rounds)]) * 1e3


def _seconds_for_fifty(tools: Tools) -> float:
    start = time.perf_counter()
    keep_with(tools, 50)
    return time.perf_counter() - start


def time_listing(tools: Tools, *, rounds: int) -> float:
    """Microseconds for a list of a thousand tools."""
    keep = keep_with(tools, 1000)
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        keep.tools()
        seconds.append(time.perf_counter() - start)
    return median(seconds) * 1e6
