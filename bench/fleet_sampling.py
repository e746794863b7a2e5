"""What does it cost to have a second worker run a share of the deterministic calls? Prints a table.

.venv/bin/python bench/fleet_sampling.py [--seconds N] [--rounds N]

One process has three servers, which sample none, a tenth and all of the calls of a confined function, on the
same two workers over NATS. They take turns in each round, another one first each time. Processor time is read
when the second runs have ended, too.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

from measures.fleet_parts import configure, fleet, key_of, make_home, nats_server, state_of, worker
from measures.home import empty_home
from measures.process_tree import processor_seconds
from measures.statistics import median, median_ratio
from tables import print_notes, print_table
from toolkeep import Keep, open_keep

SHARES = (0.0, 0.1, 1.0)
IN_FLIGHT = 8
SLOTS = 16
"""Of each worker: a second run finds one free."""


class Lane:
    """A server, and what its turns gave."""

    def __init__(
        self, keep: Keep, parts: dict[str, Callable[[], float]], numbers: "itertools.count[int]"
    ) -> None:
        self._keep = keep
        self._parts = parts
        self._numbers = numbers
        self.calls = 0
        self.rates: list[float] = []
        self.used_us: dict[str, list[float]] = {who: [] for who in parts}

    async def ready(self) -> None:
        """Both workers are there, and processes lie ready."""
        await self._keep.connect_workers()
        while any(one.state != "ready" for one in self._keep.workers() or ()):  # noqa: ASYNC110 -- nothing tells
            await asyncio.sleep(0.05)
        await self._together(1.0)

    def sampled(self) -> int:
        """Second runs so far; each counts for both workers."""
        workers = self._keep.workers() or ()
        return sum(one.samples_agreed + one.samples_differed for one in workers) // 2

    async def turn(self, seconds: float) -> None:
        """So many calls at once."""
        # A worker tells with its heartbeats which slots the servers before have left.
        while any(one.free < SLOTS for one in self._keep.workers() or ()):  # noqa: ASYNC110 -- nothing tells
            await asyncio.sleep(0.05)
        before, began = {who: used() for who, used in self._parts.items()}, time.perf_counter()
        made = await self._together(seconds)
        self.rates.append(made / (time.perf_counter() - began))
        while any(one.jobs for one in self._keep.workers() or ()):  # noqa: ASYNC110 -- nothing tells
            await asyncio.sleep(0.01)
        self.calls += made
        for who, used in self._parts.items():
            self.used_us[who].append((used() - before[who]) * 1e6 / made)

    async def _together(self, seconds: float) -> int:
        made, until = 0, time.perf_counter() + seconds

        async def caller() -> None:
            nonlocal made
            while time.perf_counter() < until:
                result = await self._keep.call("add", {"a": next(self._numbers), "b": 1})
                if not result.ok:
                    raise RuntimeError(result.text)
                made += 1

        await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
        return made


def declare(home: Path) -> None:
    """Equal calls of a deterministic tool are answered by the cache: each call has arguments of its own."""
    file = home / ".agent" / "config.yml"
    known = json.loads(file.read_text())
    for tool in known["tools"]["custom"]:
        tool["determinism"] = "Deterministic"
    file.write_text(json.dumps(known))


async def measure(folder: Path, url: str, nats: int, *, seconds: float, rounds: int) -> dict[float, Lane]:
    """Every server once a round."""
    workers = {name: make_home(folder / name) for name in ("worker-1", "worker-2")}
    servers = {share: make_home(folder / f"server-{share}") for share in SHARES}
    keys = {name: key_of(state_of(home), "worker") for name, home in workers.items()}
    trusted = [{"name": home.name, "key": key_of(state_of(home), "server")} for home in servers.values()]
    for home in workers.values():
        configure(home, worker={"nats": {"servers": url}, "servers": trusted})
    for share, home in servers.items():
        settings = fleet(url, keys)
        configure(home, fleet={**settings["fleet"], "sample": share})  # type: ignore[dict-item]
    for home in (*workers.values(), *servers.values()):
        declare(home)
    async with contextlib.AsyncExitStack() as stack:
        started = [stack.enter_context(worker(home, "--slots", str(SLOTS))) for home in workers.values()]
        parts = {
            "server": time.process_time,
            "workers": lambda: sum(map(processor_seconds, started)),
            "NATS": lambda: processor_seconds(nats),
        }
        lanes, numbers = {}, itertools.count()
        for share, home in servers.items():
            os.environ.update(HOME=str(home), TOOLKEEP_HOME=state_of(home))
            keep = await stack.enter_async_context(open_keep(project=home))
            lanes[share] = Lane(keep, parts, numbers)
            await lanes[share].ready()
        counted = {share: lane.sampled() for share, lane in lanes.items()}
        for number in range(rounds):
            for place in range(len(SHARES)):
                await lanes[SHARES[(place + number) % len(SHARES)]].turn(seconds)
        report(lanes, {share: lane.sampled() - counted[share] for share, lane in lanes.items()})
    return lanes


def report(lanes: dict[float, Lane], sampled: dict[float, int]) -> None:
    """The table."""
    rows = [
        [
            f"{share:g}",
            f"{lane.calls:,}",
            f"{sampled[share] / lane.calls:.2f}",
            f"{median(lane.rates):,.0f}",
            f"{median_ratio(lane.rates, lanes[0.0].rates):.2f}",
            *(f"{median(used):,.0f}" for used in lane.used_us.values()),
        ]
        for share, lane in lanes.items()
    ]
    columns = [
        "sample",
        "calls",
        "second runs",
        "a second",
        "× none",
        "server µs",
        "workers µs",
        "NATS µs",
    ]
    print_table(f"{IN_FLIGHT} in flight, two workers; processor time for a call", columns, rows)
    print_notes(["second runs: those whose result was compared, by calls"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What sampling of deterministic calls costs.")
    parser.add_argument("--seconds", type=float, default=2.5, help="of a turn")
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    print(
        f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    with empty_home() as folder, nats_server() as (url, nats):
        asyncio.run(measure(folder, url, nats, seconds=options.seconds, rounds=options.rounds))


if __name__ == "__main__":
    main()
