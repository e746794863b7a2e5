"""What does a fresh, confined process for each call cost? Prints tables.

python bench/sandbox.py [--quick]

First the sandbox alone, by its pool: a worker that waits and narrows itself to the same grant or to another
each time, and one that is forked on demand; beside a live process that is reused, a bare fork of
Python, and cold starts with and without bubblewrap, each in turn in the same rounds. Then whole calls through
the public face of a keep in memory; in flight: so many together that most have to fork.
"""

import argparse
import asyncio
import logging
import os
import resource
import subprocess
import sys
import time

from measures.home import empty_home
from measures.statistics import median, median_ratio, percentile
from measures.workers import Lane, Lanes
from tables import print_notes, print_table
from toolkeep import Keep
from workloads import isolated

LEVELS = ("standard", "strict", "restricted")
LIVE = "live process, one line each way"
COLD = "cold python -I -S -E"
REFILL_S = 0.25
"""Longer than a worker takes to be ready again."""

ECHO = "import sys\nfor line in sys.stdin:\n    print(line, end='', flush=True)\n"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What a fresh, confined process for each call costs.")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    rounds = 5 if options.quick else 40
    with empty_home():
        asyncio.run(_measure_alone(rounds))
        asyncio.run(_measure_processor(5 * rounds))
        asyncio.run(_measure(rounds))


async def _measure_alone(rounds: int) -> None:
    """The sandbox without a keep around it."""
    lanes = Lanes()
    try:
        named = await lanes.open()
        for lane in (*named.values(), *named.values()):
            await lane()
        found = await _interleaved(named, rounds)
    finally:
        await lanes.close()
    beside = ("live reused process", "bare os.fork", COLD)
    rows = [
        [
            name,
            f"{median(one) * 1e3:.2f}",
            f"{percentile(one, 0.99) * 1e3:.2f}",
            *(f"{median_ratio(one, found[other]):.2f}" for other in beside),
        ]
        for name, one in found.items()
    ]
    heads = ["", "median", "p99", "× live", "× fork", "× cold"]
    print_table("One call of a process after a pause, ms", heads, rows)


async def _measure_processor(calls: int) -> None:
    """Processor time of the host and everything it started, for a call; zygotes are started before."""
    found: dict[str, float] = {}
    for name in ("restricted, pooled", "strict, pooled, same grant", "strict, forked on demand", COLD):
        found[name] = await _processor_of(name, 2 * calls) - await _processor_of(name, calls)
    rows = [[name, f"{used / calls * 1e3:.2f}", f"{used / found[COLD]:.2f}"] for name, used in found.items()]
    print_table("Processor time of a call, ms", ["", "", "× cold"], rows)


async def _processor_of(name: str, calls: int) -> float:
    """What so many calls take, with all that was started for them, from its start to its end."""
    before = _processor_time()
    lanes = Lanes()
    try:
        lane = (await lanes.open())[name]
        for _ in range(calls):
            await lane()
    finally:
        await lanes.close()
    return _processor_time() - before


def _processor_time() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


async def _measure(rounds: int) -> None:
    keep = Keep()
    keep.register(*(getattr(isolated, f"add_{where}") for where in ("here", *LEVELS)))
    live = subprocess.Popen(  # noqa: ASYNC220 -- nothing is timed yet
        [sys.executable, "-I", "-S", "-c", ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    lanes: dict[str, Lane] = {
        "in this process": lambda: _call(keep, "add_here"),
        **{f"{level}, warm": _warm(keep, f"add_{level}") for level in LEVELS},
        LIVE: lambda: _echo(live),
    }
    async with keep:
        for lane in lanes.values():
            await lane()
        found = await _interleaved(lanes, rounds)
        _print_alone(found)
        for count in (1, 8, 32):
            await _print_together(keep, count)
    live.terminate()
    live.wait()


async def _interleaved(lanes: dict[str, Lane], rounds: int) -> dict[str, list[float]]:
    """Each lane once a round, another one first each time; workers get time to be ready again."""
    found: dict[str, list[float]] = {name: [] for name in lanes}
    names = list(lanes)
    for number in range(rounds):
        for place in range(len(names)):
            name = names[(place + number) % len(names)]
            await asyncio.sleep(REFILL_S)
            start = time.perf_counter()
            await lanes[name]()
            found[name].append(time.perf_counter() - start)
    return found


def _warm(keep: Keep, name: str) -> Lane:
    return lambda: _call(keep, name)


async def _call(keep: Keep, name: str) -> None:
    result = await keep.call(name, {"a": 1, "b": 2})
    if result.value != 3:
        raise RuntimeError(result.text)


async def _echo(live: "subprocess.Popen[str]") -> None:
    if live.stdin is None or live.stdout is None:
        raise RuntimeError("no pipes")
    live.stdin.write("{}\n")
    live.stdin.flush()
    live.stdout.readline()


def _print_alone(found: dict[str, list[float]]) -> None:
    rows = [
        [
            name,
            f"{median(one) * 1e3:.2f}",
            f"{percentile(one, 0.99) * 1e3:.2f}",
            f"{median_ratio(one, found[LIVE]):.1f}",
        ]
        for name, one in found.items()
    ]
    print_table("One call of a keep after a pause, ms", ["", "median", "p99", "× live"], rows)


async def _print_together(keep: Keep, count: int) -> None:
    rows = []
    for level in LEVELS:
        start, processor = time.perf_counter(), os.times()
        calls = max(count, 16)
        waiting = asyncio.Semaphore(count)

        async def one(name: str = f"add_{level}", waiting: asyncio.Semaphore = waiting) -> None:
            async with waiting:
                await _call(keep, name)

        await asyncio.gather(*(one() for _ in range(calls)))
        elapsed = time.perf_counter() - start
        used = sum(os.times()[:4]) - sum(processor[:4])
        rows.append([level, f"{calls / elapsed:.0f}", f"{used / calls * 1e3:.1f}"])
    print_table(f"{count} in flight", ["", "calls/s", "processor here, ms a call"], rows)
    print_notes(["processor time of workers counts when their zygote ends, so it is not in this column"])


if __name__ == "__main__":
    main()
