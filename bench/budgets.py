"""The budgets of the specification (VAL-11), measured: what each is, what it takes here, whether it holds.

    bench/run budgets
    .venv/bin/python bench/budgets.py --quick

Processor time, the best of several runs, so that what else the machine does counts little. The exit status is
1 where a budget does not hold.
"""

import argparse
import gc
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import toolkeep
from measures.home import empty_home
from measures.memory import LARGEST, bytes_of_largest, bytes_per_tool
from measures.registration import Tools, keep_with
from measures.statistics import median, percentile
from tables import print_notes, print_table
from workloads.cases import CASES
from workloads.real import define, read_tools

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What the specification allows, and what it takes."""

    what: str
    limit: float
    measured: float
    unit: str

    @property
    def holds(self) -> bool:
        return self.measured < self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long to measure."""

    passes: int
    rounds: int
    tools_in_memory: int


FULL = Plan(passes=5, rounds=200, tools_in_memory=10_000)
QUICK = Plan(passes=2, rounds=20, tools_in_memory=200)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """Milliseconds for each tool: the fastest of its runs."""

    compiling: list[float]
    registering: list[float]
    """With everything: taken over, its words cleaned and read, compiled, hashed, pinned."""


def main() -> int:
    options = _options()
    plan = QUICK if options.quick else FULL
    if not options.data.is_dir():
        print(f"no folder {options.data}: the budgets are about real tools", file=sys.stderr)
        return 2
    with empty_home():
        tools = read_tools(options.data)
        registered = _time_registration(tools, plan.passes)
        budgets = list(_budgets(tools, registered, plan, options.data))
        largest = bytes_of_largest(options.data, plan.tools_in_memory // 10)
    _print(budgets, registered, largest, _size_of_largest(tools))
    if options.json:
        rows = [asdict(budget) | {"holds": budget.holds} for budget in budgets]
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return 0 if all(budget.holds for budget in budgets) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to FILE")
    parser.add_argument("--data", type=Path, metavar="DIR", default=ROOT.parent / "shared" / "data")
    return parser.parse_args()


def _budgets(tools: Tools, registered: Registered, plan: Plan, data: Path) -> Iterator[Budget]:
    slowest = max(registered.compiling)
    yield Budget(what="compile a schema, the slowest", limit=10, measured=slowest, unit="ms")
    yield Budget(what="a small call", limit=1, measured=_small_call_ms(plan.rounds), unit="ms")
    keep = keep_with(tools, 1000)
    listing = _best(keep.tools, plan.rounds) * 1e6
    yield Budget(what="list 1,000 tools", limit=100, measured=listing, unit="µs")
    fifty = _best(lambda: keep_with(tools, 50), 5) * 1e3
    yield Budget(what="50 tools ready", limit=500, measured=fifty, unit="ms")
    kilobytes = bytes_per_tool(data, plan.tools_in_memory) / 1000
    yield Budget(what="memory of a compiled schema, the mean", limit=50, measured=kilobytes, unit="KB")


def _time_registration(tools: Tools, passes: int) -> Registered:
    """Every tool by itself, again and again; a first pass brings in what is imported on demand."""
    _register_each(tools)
    gc.collect()
    gc.disable()
    try:
        runs = [_register_each(tools) for _ in range(passes)]
    finally:
        gc.enable()
    compiling, registering = zip(*runs, strict=True)
    return Registered(compiling=_fastest(compiling), registering=_fastest(registering))


def _fastest(runs: tuple[list[float], ...]) -> list[float]:
    return [min(times) for times in zip(*runs, strict=True)]


def _register_each(tools: Tools) -> tuple[list[float], list[float]]:
    keep = toolkeep.open_keep(built_in=False)
    compiling, registering = [], []
    for number, (description, schema) in enumerate(tools):
        started = time.process_time()
        try:
            keep.register(define(f"tool_{number}", description, schema))
        except toolkeep.ToolkeepError:
            continue
        registering.append((time.process_time() - started) * 1e3)
        compiling.append(keep.get(f"tool_{number}").compile_ms)
    return compiling, registering


def _small_call_ms(rounds: int) -> float:
    case = CASES[0]
    keep = toolkeep.open_keep(built_in=False)
    keep.register(case.function)
    calls = 100
    check: Callable[[], Any] = lambda: [  # noqa: E731 -- what is timed
        keep.try_validate_arguments(case.function.__name__, case.raw) for _ in range(calls)
    ]
    return _best(check, rounds) * 1e3 / calls


def _size_of_largest(tools: Tools) -> int:
    """The bytes of the smallest of the twenty largest schemas."""
    return sorted(len(json.dumps(schema)) for _, schema in tools)[-LARGEST:][0]


def _best(work: Callable[[], Any], rounds: int) -> float:
    """Seconds of the fastest run; the first one is left out."""
    work()
    return min(_seconds(work) for _ in itertools.repeat(None, rounds))


def _seconds(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _print(budgets: list[Budget], registered: Registered, largest: float, smallest_bytes: int) -> None:
    rows = [
        [
            one.what,
            f"< {one.limit:g} {one.unit}",
            f"{one.measured:.3g} {one.unit}",
            "yes" if one.holds else "NO",
        ]
        for one in budgets
    ]
    print_table("budgets (VAL-11)", ["", "budget", "here", "holds"], rows)
    times = registered.registering
    spread = f"p50 {median(times):.2f}, p99 {percentile(times, 0.99):.2f}, the slowest {max(times):.2f} ms"
    over = sum(one > 10 for one in times)
    compiling = f"p50 {median(registered.compiling):.2f}, p99 {percentile(registered.compiling, 0.99):.2f} ms"
    whole = f"with everything from data to registered, words read for instructions too: {spread}"
    print_notes(
        [
            f"{len(times):,} real tools; compiling: {compiling}",
            f"{whole}; {over} take more than 10 ms",
            f"the 20 largest, of {smallest_bytes:,} bytes and more, take {largest / 1000:.0f} KB each",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
