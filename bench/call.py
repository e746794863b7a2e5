"""What does a guarded call cost beside the unguarded ones of the rivals? Prints tables.

Times of this machine say little, least of all those of its disk; the ratios, taken in the same rounds, travel
better. See bench/README.md.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import platform
import sys
import warnings
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from measures.home import empty_home
from measures.running import Alone, Together, time_alone, time_together
from measures.statistics import median
from rivals.caller import Caller, Prepare
from rivals.callers import gather_callers
from rivals.field import Field, version_of
from tables import print_notes, print_table
from workloads.calls import Work, works

CALLERS = (32, 256)
GUARDED = "toolkeep, "


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long to measure."""

    rounds: int
    rounds_together: int


FULL = Plan(rounds=20, rounds_together=6)
QUICK = Plan(rounds=4, rounds_together=1)

Results = dict[str, Any]
Lanes = dict[str, Prepare]


class Unexpected(Exception):
    """A call did not come back as it should: nothing about it is worth timing."""


def main() -> int:
    """Measure, print, and write the raw numbers where that is asked for."""
    options = _options()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    field = gather_callers()
    results: Results = {"python": platform.python_version(), "versions": _versions(field)}
    _print_field(field)
    with empty_home():
        for work in works():
            results[work.title] = asyncio.run(_measure(work, field.present, QUICK if options.quick else FULL))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw numbers to FILE")
    return parser.parse_args()


def _versions(field: Field[Caller]) -> dict[str, str]:
    present = {one.package: version_of(one) for one in field.present}
    return present | dict.fromkeys(field.absent, "not installed")


def _print_field(field: Field[Caller]) -> None:
    print("What is timed, until the answer is there:")
    print_notes(f"{one.name} {version_of(one)}: {one.timed}" for one in field.present)
    print_notes(f"{name}: not installed" for name in field.absent)


async def _measure(work: Work, callers: Sequence[Caller], plan: Plan) -> Results:
    async with _opened(work, callers) as lanes:
        gc.collect()
        gc.freeze()  # what the frameworks hold is no part of anybody's collections
        alone = await time_alone(lanes, rounds=plan.rounds)
        _print_alone(f"{work.title}, {len(work.sample):,} bytes, one after the other", alone)
        results: Results = {"alone": {name: _numbers(one) for name, one in alone.items()}}
        if work.title.startswith("small"):
            for count in CALLERS:
                together = await time_together(lanes, callers=count, rounds=plan.rounds_together)
                _print_together(f"{work.title}, {count} callers at once", together)
                results[f"{count} callers"] = {name: asdict(one) for name, one in together.items()}
    return results


@contextlib.asynccontextmanager
async def _opened(work: Work, callers: Sequence[Caller]) -> AsyncIterator[Lanes]:
    """The tool in every framework that can run it, each call seen to work once."""
    async with contextlib.AsyncExitStack() as stack:
        lanes: Lanes = {}
        for caller in callers:
            with contextlib.suppress(NotImplementedError):
                prepare = await stack.enter_async_context(caller.open(work))
                answer = await prepare(0)()
                if not caller.is_expected(answer):
                    raise Unexpected(f"{caller.name}: {answer!r}")
                lanes[caller.name] = prepare
        yield lanes


def _print_alone(title: str, found: Mapping[str, Alone]) -> None:
    rivals = _rivals(found)
    heads = ["", "µs", "p99", "processor", *(f"× {name}" for name in rivals)]
    rows = [
        [
            name,
            f"{median(one.medians) * 1e6:.0f}",
            f"{one.p99 * 1e6:.0f}",
            f"{median(one.processor) * 1e6:.0f}",
            *(_ratio(name, one.ratio(found[rival])) for rival in rivals),
        ]
        for name, one in found.items()
    ]
    print_table(title, heads, rows)


def _print_together(title: str, found: Mapping[str, Together]) -> None:
    rivals = _rivals(found)
    heads = ["", "calls/s", "processor", *(f"× {name}" for name in rivals)]
    rows = [
        [
            name,
            f"{median(one.rates):,.0f}",
            f"{median(one.processor) * 1e6:.0f}",
            *(_ratio(name, one.ratio(found[rival])) for rival in rivals),
        ]
        for name, one in found.items()
    ]
    print_table(title, heads, rows)


def _rivals(found: Mapping[str, object]) -> list[str]:
    return [name for name in found if not name.startswith(GUARDED)]


def _ratio(name: str, ratio: float) -> str:
    return f"{ratio:.2f}" if name.startswith(GUARDED) else ""


def _numbers(one: Alone) -> dict[str, Any]:
    return {"medians": one.medians, "p99": one.p99, "processor": one.processor}


if __name__ == "__main__":
    sys.exit(main())
