"""Do registering, look-up, listing and search stay fast with ten thousand tools? Prints tables.

Times of this machine say little; the ratios, taken in the same rounds, travel better. See bench/README.md.
"""

import argparse
import json
import logging
import platform
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from measures.cold_start import commands, time_cold_starts
from measures.comparison import Comparison, Seconds, compare
from measures.home import empty_home
from measures.keeping import Given, Manner, measure_keeping
from measures.registries import CALL_KINDS, MORE_A_ROUND, SEARCH, Line, fill, time_calls, time_one_more
from measures.statistics import median, median_ratio
from measures.threads import READERS, time_reads
from rivals.field import Field, gather_registries, version_of
from rivals.plain_dict import PlainDict
from rivals.registry import Registry
from rivals.toolkeep_registry import ToolkeepRegistry
from tables import print_notes, print_table
from workloads.functions import make_functions
from workloads.real import read_admitted_tools

ROOT = Path(__file__).parent.parent
DATA = "toolkeep, data"
EXACT = CALL_KINDS[0]

MOST_WRITTEN = 20_000
"""Functions for the thread that registers: more than it can get through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long to measure."""

    sizes: tuple[int, ...]
    rounds: int
    search_rounds: int
    more: int
    kept: int
    starts: int
    thread_rounds: int


FULL = Plan(
    sizes=(10, 1_000, 10_000), rounds=60, search_rounds=20, more=15, kept=10_000, starts=20, thread_rounds=12
)
QUICK = Plan(sizes=(10, 300, 1_000), rounds=10, search_rounds=5, more=5, kept=500, starts=5, thread_rounds=3)

Results = dict[str, Any]


def main() -> int:
    """Measure, print, and write the raw numbers where that is asked for."""
    options = _options()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    plan = QUICK if options.quick else FULL
    field = gather_registries()
    results: Results = {"python": platform.python_version(), "versions": _versions(field)}
    _print_field(field)
    with empty_home() as home:
        results["cold_start_ms"] = _measure_cold_starts(field.present, plan, home)
        results["keeping"] = _measure_keeping(field.present, plan, options.data)
        results["calls"] = _measure_calls(field.present, plan, options.data)
        results["threads"] = _measure_threads(plan)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw numbers to FILE")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        default=ROOT.parent / "shared" / "data",
        help="folder with tools.jsonl (default: ../shared/data beside the checkout)",
    )
    return parser.parse_args()


def _versions(field: Field[type[Registry]]) -> dict[str, str]:
    present = {one.name: version_of(one) for one in field.present}
    return present | dict.fromkeys(field.absent, "not installed")


def _print_field(field: Field[type[Registry]]) -> None:
    print("What is timed, by everyone's public calls:")
    print_notes(f"{one.name} {version_of(one)}: {one.timed}" for one in field.present)
    print_notes(f"{name}: not installed" for name in field.absent)


def _measure_cold_starts(registries: Sequence[type[Registry]], plan: Plan, home: Path) -> Results:
    starts = time_cold_starts(commands(registries, home), rounds=plan.starts)
    heads = ["", "process", "over empty", "best", "import to ready", "best"]
    rows = (
        [
            one.name,
            f"{one.wall:.0f}",
            f"+{one.over_empty:.0f}",
            f"+{one.over_empty_best:.0f}",
            f"{one.import_to_ready:.0f}",
            f"{one.import_to_ready_best:.0f}",
        ]
        for one in starts
    )
    print_table("50 tools ready from a cold start, ms (the target: under 500)", heads, rows)
    return {one.name: asdict(one) for one in starts}


def _measure_keeping(registries: Sequence[type[Registry]], plan: Plan, data: Path) -> Results:
    kinds: list[tuple[str, Given, Manner]] = [
        ("toolkeep", "functions", "in one go"),
        *((one.name, "functions", "one by one") for one in registries),
    ]
    if data.is_dir():
        kinds += [("toolkeep", "data", "in one go"), ("toolkeep", "data", "one by one")]
    kept = {kind: measure_keeping(*kind, plan.kept, data) for kind in kinds}
    yardstick = kept[kinds[0]]
    rows = [
        [
            ", ".join(kind),
            f"{one.seconds:.1f}",
            _short(one.seconds / plan.kept * 1e6),
            f"{one.seconds / yardstick.seconds:.2f}",
            f"{one.bytes_per_tool / 1024:.1f}",
            f"{one.bytes_per_tool / yardstick.bytes_per_tool:.2f}",
        ]
        for kind, one in kept.items()
    ]
    heads = ["", "s", "µs a tool", "ratio", "KiB a tool", "ratio"]
    print_table(f"registering and keeping {plan.kept:,} tools, own process each", heads, rows)
    return {", ".join(kind): asdict(one) for kind, one in kept.items()}


def _measure_calls(registries: Sequence[type[Registry]], plan: Plan, data: Path) -> Results:
    lines = _lines(registries, plan, data)
    names = [line.name for line in lines]
    yardstick = Line(name=PlainDict.name, make=PlainDict, tools=lines[0].tools)
    filled = fill([yardstick, *lines], plan.sizes)
    results: Results = {}
    for kind in CALL_KINDS:
        rounds = plan.search_rounds if kind == SEARCH else plan.rounds
        results[kind] = _report(kind, time_calls(kind, filled, rounds=rounds), names, plan.sizes)
    contestants = [one for one in filled if one.line in names]
    for title, seconds in time_one_more(contestants, rounds=plan.more).items():
        results[title] = _report(title, seconds, names, plan.sizes)
    return results


def _lines(registries: Sequence[type[Registry]], plan: Plan, data: Path) -> list[Line]:
    count = plan.sizes[-1] + (plan.more + 1) * MORE_A_ROUND
    functions = make_functions(count)
    lines = [Line(name=one.name, make=one, tools=functions) for one in registries]
    if data.is_dir():
        lines.insert(1, Line(name=DATA, make=ToolkeepRegistry, tools=read_admitted_tools(data, count)))
    else:
        print(f"\nno folder {data}: definitions as data are left out", file=sys.stderr)
    return lines


def _report(title: str, seconds: Seconds, names: Sequence[str], sizes: Sequence[int]) -> Results:
    """Print one table, with dashes for a contestant that cannot do it."""
    compared = compare(seconds)
    unit, factor = ("ns", 1e9) if "by the tool" in title else ("µs", 1e6)
    heads = [f"{size:,}" for size in sizes]
    heads += [f"{size:,}/{sizes[0]}" for size in sizes[1:]]
    heads += [f"×toolkeep {size:,}" for size in sizes]
    heads += [f"×dict {size:,}" for size in sizes] if title == EXACT else []
    rows = []
    yardstick = [PlainDict.name] if (PlainDict.name, sizes[0]) in compared else []
    for line in (*yardstick, *names):
        mine = [compared.get((line, size)) for size in sizes]
        cells = _column(mine, lambda one: one.seconds * factor)
        cells += _column(mine[1:], lambda one: one.growth)
        cells += _column(mine, lambda one: one.to_toolkeep)
        cells += _column(mine, lambda one: one.to_dict) if title == EXACT else []
        rows.append([line, *cells])
    print_table(f"{title}, {unit}", ["", *heads], rows)
    return {f"{line}, {size}": asdict(one) for (line, size), one in compared.items()}


def _column(compared: Sequence[Comparison | None], part: Callable[[Comparison], float | None]) -> list[str]:
    return [_short(None if one is None else part(one)) for one in compared]


def _measure_threads(plan: Plan) -> Results:
    size = plan.sizes[1]
    functions = make_functions(size + MOST_WRITTEN)
    registry = ToolkeepRegistry()
    registry.register(*functions[:size])
    names = [function.__name__ for function in functions[: size : size // 100]]
    rates = time_reads(registry.keep, names, iter(functions[size:]), rounds=plan.thread_rounds)
    alone, counting, _ = (one.reads for one in rates.values())
    rows = (
        [
            name,
            f"{median(one.reads):,.0f}",
            f"{median_ratio(one.reads, alone):.2f}",
            f"{median_ratio(one.reads, counting):.2f}",
            f"{median(one.work):,.0f}",
        ]
        for name, one in rates.items()
    )
    heads = ["", "reads", "×alone", "×counting", "turns of the fifth"]
    print_table(
        f"{READERS} threads look up among {size:,} tools, toolkeep; by the second of processor time",
        heads,
        rows,
    )
    return {name: {"reads": median(one.reads), "work": median(one.work)} for name, one in rates.items()}


def _short(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main())
