"""How fast is a call checked, beside the rivals, and what do tools cost to keep? Prints tables.

Times of this machine say little; the ratios to `orjson.loads` of the same bytes, taken in the same rounds,
travel better. See bench/README.md.
"""

import argparse
import gc
import json
import logging
import platform
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from measures.against import compare
from measures.home import empty_home
from measures.interleave import Timing
from measures.memory import bytes_per_tool
from measures.ratios import time_case, time_real
from measures.refusals import BAD_CALLS, time_refusal
from measures.registration import time_fifty, time_listing, time_registration
from measures.startup import EMPTY, VALIDATE, commands, time_startup
from measures.statistics import median, percentile
from rivals.contestant import Contestant
from rivals.field import Field, gather, version_of
from tables import print_notes, print_table
from workloads.cases import CASES
from workloads.real import read_calls, read_tools

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long to measure."""

    rounds: int
    real_rounds: int
    real_calls: int | None
    tools_in_memory: int
    starts: int


FULL = Plan(rounds=200, real_rounds=40, real_calls=None, tools_in_memory=10_000, starts=30)
QUICK = Plan(rounds=30, real_rounds=10, real_calls=150, tools_in_memory=2_000, starts=7)

Results = dict[str, Any]


def main() -> int:
    """Measure, print, and write the raw numbers where that is asked for."""
    options = _options()
    if options.against:
        return _compare_refusals(options)
    logging.disable(logging.CRITICAL)  # the frameworks log the refusals that this provokes
    warnings.simplefilter("ignore")
    plan = QUICK if options.quick else FULL
    field = gather()
    results: Results = {"python": platform.python_version(), "versions": _versions(field)}
    _print_field(field)
    with empty_home():
        results["ratios"] = _measure_ratios(field.present, plan, options.data)
        results["refusals"] = _measure_refusals(field.present, plan)
        if options.data.is_dir():
            results |= _measure_keeping(plan, options.data)
        else:
            print(f"\nno folder {options.data}: real calls and registration are left out", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw numbers to FILE")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="only compare refusals with those of another checkout of toolkeep, in turns",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        default=ROOT.parent / "shared" / "data",
        help="folder with tools.jsonl and calls.jsonl (default: ../shared/data beside the checkout)",
    )
    return parser.parse_args()


def _versions(field: Field[Contestant]) -> dict[str, str]:
    present = {contestant.name: version_of(contestant) for contestant in field.present}
    return present | dict.fromkeys(field.absent, "not installed")


def _print_field(field: Field[Contestant]) -> None:
    print("What is timed, from the text of a call to its validated arguments:")
    print_notes(f"{one.name} {version_of(one)}: {one.timed}" for one in field.present)
    print_notes(f"{name}: not installed" for name in field.absent)


def _measure_ratios(contestants: Sequence[Contestant], plan: Plan, data: Path) -> Results:
    results: Results = {}
    for case in CASES:
        timings = time_case(case, contestants, rounds=plan.rounds)
        _print_timings(f"{case.title} call, {len(case.raw):,} bytes", timings)
        results[case.title] = _numbers(timings)
    if data.is_dir():
        calls = read_calls(data)[: plan.real_calls]
        timings, used = time_real(calls, contestants, rounds=plan.real_rounds)
        mean_bytes = sum(len(call.raw) for call in calls) / len(calls)
        _print_timings(f"real calls: {used:,} tools, {mean_bytes:.0f} bytes a call on average", timings)
        results["real"] = _numbers(timings)
    return results


def _measure_refusals(contestants: Sequence[Contestant], plan: Plan) -> Results:
    results: Results = {}
    for title, bad in BAD_CALLS.items():
        timings = time_refusal(bad, contestants, rounds=plan.rounds)
        _print_timings(f"refused call, {title}: until all errors are there as text", timings)
        results[title] = _numbers(timings)
    return results


def _compare_refusals(options: argparse.Namespace) -> int:
    with empty_home():
        found = compare(ROOT, options.against, rounds=200 if options.quick else 1000)
    rows = ([name, *(f"{number:.2f}" for number in numbers.values())] for name, numbers in found.items())
    print_table("a refused call, processor time", ["what is read", "µs here", "µs there", "ratio"], rows)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


def _measure_keeping(plan: Plan, data: Path) -> Results:
    tools = read_tools(data)
    gc.collect()
    gc.freeze()  # what the rivals left in memory is no part of toolkeep's collections
    registration = time_registration(tools)
    define, register = registration.define_ms, registration.register_ms
    both = [first + second for first, second in zip(define, register, strict=True)]
    heads = ["", "p50 ms", "p99 ms", "max ms"]
    steps = {"define": define, "register (check, compile, hash)": register, "both": both}
    print_table(
        f"compiling {len(register):,} real tools, one by one",
        heads,
        (_spread(*step) for step in steps.items()),
    )
    print_notes(f"refused with {kind}: {count}" for kind, count in registration.refused.items())

    listing_us = time_listing(tools, rounds=plan.rounds)
    fifty_ms = time_fifty(tools, rounds=plan.starts)
    memory = bytes_per_tool(data, plan.tools_in_memory)
    rows = [
        (
            "resident memory a tool",
            f"{memory / 1024:.1f} KiB",
            f"{plan.tools_in_memory:,} tools, own process",
        ),
        ("list 1,000 tools", f"{listing_us:.0f} µs", "Keep.tools()"),
        ("50 tools ready", f"{fifty_ms:.1f} ms", "everything imported"),
    ]
    print_table("keeping tools", ["", "toolkeep", "where"], rows)

    startup = time_startup(commands(data), rounds=plan.starts)
    print_table("start of a process", ["", "ms", "over an empty one"], _startup_rows(startup))
    return {
        "registration_ms": {name: _spread_numbers(values) for name, values in steps.items()},
        "refused_tools": dict(registration.refused),
        "bytes_per_tool": memory,
        "list_1000_us": listing_us,
        "fifty_ready_ms": fifty_ms,
        "startup_ms": startup,
    }


def _print_timings(title: str, timings: Sequence[Timing]) -> None:
    rows = (
        [
            one.name,
            f"{one.microseconds:.2f}",
            f"{one.ratio:.2f}",
            f"{one.ratio_p10:.2f}",
            f"{one.ratio_p90:.2f}",
        ]
        for one in timings
    )
    print_table(title, ["", "µs", "× orjson", "p10", "p90"], rows)


def _numbers(timings: Iterable[Timing]) -> dict[str, dict[str, Any]]:
    return {timing.name: asdict(timing) for timing in timings}


def _spread(name: str, values: Sequence[float]) -> list[str]:
    return [name, *(f"{value:.3f}" for value in _spread_numbers(values).values())]


def _spread_numbers(values: Sequence[float]) -> dict[str, float]:
    return {"p50": median(values), "p99": percentile(values, 0.99), "max": max(values)}


def _startup_rows(startup: dict[str, float | None]) -> list[list[str]]:
    empty = startup[EMPTY] or 0.0
    return [
        [name, "fails", f"{VALIDATE} may not be there yet" if name == VALIDATE else ""]
        if milliseconds is None
        else [name, f"{milliseconds:.1f}", f"+{milliseconds - empty:.1f}"]
        for name, milliseconds in startup.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
