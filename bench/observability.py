"""What do metrics and traces cost? The same call in this process, observed and not, in turn. Prints a table.

Processor time, so that other work on the machine counts little; ratios are taken within rounds.
"""

import argparse
import asyncio
import sys
import time

from measures.home import empty_home
from measures.statistics import median
from tables import print_table
from toolkeep import Keep, tool
from toolkeep.server.app_factory import start_metrics, start_traces

OFF = "off"
Times = dict[str, list[float]]


@tool(side_effects=[])
async def echo(text: str) -> str:
    """Give back a text.

    Args:
        text: What to give back.
    """
    return text


def keeps() -> dict[str, Keep]:
    """Four keeps, each observed in its own way; no SDK collects what the API is told."""
    made = {name: Keep() for name in (OFF, "off again", "metrics", "traces", "metrics and traces")}
    for name, keep in made.items():
        keep.register(echo)
        if "metrics" in name:
            start_metrics(keep)
        if "traces" in name:
            start_traces(keep)
    return made


async def once(keep: Keep, count: int) -> float:
    """Microseconds of processor time for one call."""
    began = time.process_time()
    for _ in range(count):
        await keep.call("echo", b'{"text": "hello"}')
    return (time.process_time() - began) / count * 1e6


async def measure(rounds: int, count: int) -> Times:
    observed = keeps()
    times: Times = {name: [] for name in observed}
    for keep in observed.values():
        await once(keep, count)
    for number in range(rounds):
        names = list(observed)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            times[name].append(await once(observed[name], count))
    return times


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    options = parser.parse_args()
    with empty_home():
        times = asyncio.run(measure(*((5, 200) if options.quick else (40, 500))))
    rows = [
        [
            name,
            f"{median(found):.1f}",
            f"{median([one / off for one, off in zip(found, times[OFF], strict=True)]):.3f}",
        ]
        for name, found in times.items()
    ]
    print_table("A call in this process, log in memory", ["", "µs", "× off"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
