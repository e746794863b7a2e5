"""What do many idle workers cost? Prints tables.

bench/run fleet_idle [--quick] [--workers N] [--simulated N]

First, real `toolkeep worker` processes on one NATS with one server that knows all their keys: memory, with
shared pages counted by their part, processor time and messages while nothing is called, how soon a server
that starts sees the last of them, and a call. Then workers that one process simulates (`measures/crowd.py`),
each with a key, a session and a connection of its own, so that the server and NATS are loaded as by real
ones.
"""

import argparse
import compileall
import contextlib
import json
import logging
import os
import platform
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from measures.fleet_parts import (
    PROGRAMS,
    Client,
    configure,
    fleet,
    key_of,
    make_home,
    nats_server,
    process,
    state_of,
)
from measures.home import empty_home
from measures.mcp_load import BENCH, free_port
from measures.process_tree import descendants, processor_seconds, proportional_bytes
from measures.statistics import median
from tables import print_table

BATCH = 10
"""Workers that are started at once."""
IN_FLIGHT = 64


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What many idle workers cost.")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    parser.add_argument("--workers", type=int, help="real ones; 200 unless told")
    parser.add_argument("--simulated", type=int, help="1,000 unless told")
    options = parser.parse_args()
    real = options.workers if options.workers is not None else (10 if options.quick else 200)
    simulated = options.simulated if options.simulated is not None else (50 if options.quick else 1000)
    seconds = 5.0 if options.quick else 60.0
    print(
        f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    # As where it is installed, even if the environment forbids to write bytecode.
    compileall.compile_dir(BENCH.parent / "src", quiet=1)
    logging.disable(logging.CRITICAL)
    found: dict[str, dict[str, str]] = {}
    with empty_home() as folder:
        if real:
            found[f"{real:,} real"] = measure(folder / "real", real, real_workers, seconds)
        for number in (1, simulated) if simulated else ():
            found[f"{number:,} simulated"] = measure(folder / f"crowd-{number}", number, crowd, seconds)
    lines = list(next(iter(found.values())))
    print_table(
        "Idle workers", ["", *found], [[line, *(one[line] for one in found.values())] for line in lines]
    )


def measure(
    folder: Path,
    count: int,
    start: Callable[[Path, list[str]], contextlib.AbstractContextManager[list[int]]],
    seconds: float,
) -> dict[str, str]:
    """Workers of one kind, with a NATS and a server of their own."""
    port = free_port()
    home, base = make_home(folder / "server"), make_home(folder / "base")
    states = [str(folder / f"state-{number}") for number in range(count)]
    keys = {f"worker-{number}": key_of(state, "worker") for number, state in enumerate(states)}
    with nats_server("-m", str(port)) as (url, nats):
        configure(home, **fleet(url, keys))
        trusted = [{"key": key_of(state_of(home), "server")}]
        configure(base, worker={"nats": {"servers": url}, "servers": trusted, "slots": 2})
        began = time.perf_counter()
        with start(base, states) as workers:
            started_s = time.perf_counter() - began
            with Client("keep", home) as first:
                run(first, "server ready", 1, 0)
            starting_s = sum(map(processor_seconds, workers)) / count
            with Client("keep", home) as server:
                seen_s = run(server, "server ready", 1, 0)[0]
                used = idle_use({"server": [server.pid], "NATS": [nats], "workers": workers}, port, seconds)
                call_s = run(server, "server echo", 1, 1)
                # Every real worker would load wasmtime for its first call.
                rate = len(run(server, "server echo", IN_FLIGHT, 3)) / 3 if len(workers) == 1 else None
                memory = {
                    "workers": sum(held(one) for one in workers) / count,
                    "server": held(server.pid),
                    "NATS": held(nats),
                }
    return {
        "seconds until all are started": f"{started_s:.0f}",
        "processor s of one worker until it is seen": f"{starting_s:.2f}",
        "seconds until a server that starts has seen the last": f"{seen_s:.1f}",
        "memory of one worker, MB": f"{memory['workers'] / 1e6:.1f}",
        "memory of the server, MB": f"{memory['server'] / 1e6:.0f}",
        "memory of NATS, MB": f"{memory['NATS'] / 1e6:.0f}",
        "processor s a minute: the server": f"{used['server'] * 60:.2f}",
        "processor s a minute: NATS": f"{used['NATS'] * 60:.2f}",
        "processor s a minute: all workers": f"{used['workers'] * 60:.1f}",
        "messages a second into NATS": f"{used['in']:,.0f}",
        "messages a second out of NATS": f"{used['out']:,.0f}",
        "ms of a call, one at a time": f"{median(call_s) * 1000:.2f}",
        f"calls a second, {IN_FLIGHT} in flight": "" if rate is None else f"{rate:,.0f}",
    }


def run(client: Client, lane: str, in_flight: int, seconds: float) -> list[float]:
    """The seconds of each call."""
    client.ask(lane, in_flight, seconds)
    return [ended - began for began, ended in client.answer()]


def idle_use(parts: dict[str, list[int]], port: int, seconds: float) -> dict[str, float]:
    """Cores in use by part, and messages a second, while nobody calls."""

    def look() -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/varz") as answer:
            told = json.load(answer)
        messages = {"in": told["in_msgs"], "out": told["out_msgs"]}
        return messages | {name: sum(map(processor_seconds, pids)) for name, pids in parts.items()}

    time.sleep(3)  # what the start left to do
    before, began = look(), time.perf_counter()
    time.sleep(seconds)
    after, elapsed = look(), time.perf_counter() - began
    return {name: (after[name] - before[name]) / elapsed for name in before}


def held(process_id: int) -> float:
    """Memory of a process with all that it started."""
    return sum(proportional_bytes(one) for one in (process_id, *descendants(process_id)))


@contextlib.contextmanager
def real_workers(base: Path, states: list[str]) -> Iterator[list[int]]:
    """One process each, which share a project and have a state folder of their own."""
    command: list[str | Path] = [PROGRAMS / "toolkeep", "worker", "--project", base]
    with contextlib.ExitStack() as stack:
        pids: list[int] = []
        for number, state in enumerate(states):
            pids.append(stack.enter_context(process(command, base, state=state)))
            if number % BATCH == BATCH - 1:
                wait_for(pids[-BATCH:])
        wait_for(pids)
        try:
            yield pids
        finally:
            for one in pids:  # all at once, before each is waited for
                os.kill(one, signal.SIGTERM)


def wait_for(pids: list[int]) -> None:
    """Until each has a watchdog, which a worker starts when it has reached NATS."""
    until = time.monotonic() + 300
    while not all(map(descendants, pids)):
        if time.monotonic() > until:
            raise RuntimeError("workers do not start")
        time.sleep(0.2)


@contextlib.contextmanager
def crowd(base: Path, states: list[str]) -> Iterator[list[int]]:
    """All in one process."""
    with process([sys.executable, "-m", "measures.crowd", str(base), *states], base, cwd=BENCH) as pid:
        yield [pid]


if __name__ == "__main__":
    main()
