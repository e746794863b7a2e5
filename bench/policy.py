"""What does a decision cost? A guarded call under 0, 10, 100 and 1,000 policies, decided before or not.

python bench/policy.py [--quick]

A tool without effects is called in memory, so that what is timed is work and no disk. `hit`: every call is
like one before, and its decision is remembered. `miss`: every call has a value that a policy reads and that
was never seen. The same call without policies of one's own is the base of the ratios, in the same rounds.
"""

import argparse
import asyncio
import gc
import itertools
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from measures.home import empty_home
from measures.statistics import median, median_ratio
from tables import print_notes, print_table
from toolkeep import Keep, tool

SIZES = (10, 100, 1_000)
BASE = "no policies of one's own"

Batch = Callable[[int], Coroutine[Any, Any, None]]


@tool(side_effects=["None"])
async def find_order(number: int, shop: str = "main") -> str:
    """Find an order.

    Args:
        number: Its number.
        shop: Where it was placed.
    """
    return f"{shop} {number}"


def policies(count: int) -> str:
    """That many policies that all look at the call; one permits it."""
    permit = '@id("orders") permit (principal, action == Action::"call", resource == Tool::"find_order");'
    forbids = (
        f'@id("never-{n}") forbid (principal, action == Action::"call", resource)'
        f" when {{ context.arguments has number && context.arguments.number == {-n} }};"
        for n in range(1, count)
    )
    return "\n".join([permit, *forbids])


def open_lanes() -> dict[str, Batch]:
    """What is timed, by name."""
    fresh = itertools.count(1_000_000)
    lanes: dict[str, Batch] = {BASE: _hits(_keep(0))}
    for size in SIZES:
        keep = _keep(size)
        lanes[f"{size:,} policies, hit"] = _hits(keep)
        lanes[f"{size:,} policies, miss"] = _misses(keep, fresh)
    return lanes


def _keep(count: int) -> Keep:
    keep = Keep()
    keep.register(find_order)
    if count:
        keep.use_policies(policies(count))
    return keep


def _hits(keep: Keep) -> Batch:
    async def batch(calls: int) -> None:
        for _ in range(calls):
            await _call(keep, 7)

    return batch


def _misses(keep: Keep, fresh: "itertools.count[int]") -> Batch:
    async def batch(calls: int) -> None:
        for number in itertools.islice(fresh, calls):
            await _call(keep, number)

    return batch


async def _call(keep: Keep, number: int) -> None:
    result = await keep.call("find_order", b'{"number":%d}' % number)
    if not result.ok:
        raise RuntimeError(result.text)


async def measure(rounds: int, calls: int) -> dict[str, list[float]]:
    """Seconds of the processor for a call, each lane once a round, another one first each time."""
    lanes = open_lanes()
    names = list(lanes)
    found: dict[str, list[float]] = {name: [] for name in names}
    for batch in lanes.values():
        await batch(20)
    gc.collect()
    gc.freeze()
    for number in range(rounds):
        for place in range(len(names)):
            name = names[(place + number) % len(names)]
            start = time.process_time()
            await lanes[name](calls)
            found[name].append((time.process_time() - start) / calls)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What a decision costs, in a guarded call.")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with empty_home():
        found = asyncio.run(measure(*((5, 50) if options.quick else (40, 200))))
    base = found[BASE]
    rows = [
        [
            name,
            f"{median(one) * 1e6:.0f}",
            f"{min(one) * 1e6:.0f}",
            f"{(median(one) - median(base)) * 1e6:+.0f}",
            f"{median_ratio(one, base):.2f}",
        ]
        for name, one in found.items()
    ]
    heads = ["", "median", "best", "over base", "× base"]
    print_table("A guarded call in memory, µs of the processor", heads, rows)
    print_notes(["miss: the decision is made by Cedar, for every policy that may apply to the tool."])


if __name__ == "__main__":
    main()
