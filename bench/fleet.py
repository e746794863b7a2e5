"""What does it cost to run a call on a worker over NATS? Prints tables.

bench/run fleet [--quick] [--only PART ...] [--against CHECKOUT] [--json FILE]

Servers, workers, NATS and rivals are processes of their own on the same cores. The lanes of a table take
turns in each round, and ratios are taken within rounds.

confined  the same confined function, in the server and on one worker
hop       a WASM echo, whose run takes next to nothing, in the server and on workers, beside a function that
          the server runs itself, and bare requests over NATS to a process that answers them
toolkeep, celery, ray
          a small function on 1, 2 and 4 workers of two slots each: in a fresh process for each task, and in
          the ordinary mode of Celery and Ray, which keeps processes and confines nothing
"""

import argparse
import compileall
import contextlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from measures.fleet_parts import (
    Client,
    Lane,
    configure,
    fleet,
    key_of,
    make_home,
    nats_server,
    process,
    state_of,
    worker,
)
from measures.home import empty_home
from measures.mcp_load import BENCH, free_port
from measures.process_tree import processor_seconds
from measures.statistics import median, median_ratio
from tables import print_notes, print_table

IN_FLIGHT = 64
RIVALS_IN_FLIGHT = 16
"""Twice what four workers run at once. A turn ends when all are done; fresh processes of Ray take long."""
WORKERS = (1, 2, 4)
SLOTS = 2
"""Of a worker beside the rivals': calls that it runs at once."""
PARTS = ("confined", "hop", "toolkeep", "celery", "ray")
FUNCTION, ECHO_HERE, ECHO_THERE = "function of the server", "WASM echo, here", "WASM echo, one worker"
FRESH, ORDINARY = "fresh", "ordinary"
TITLES = {
    "toolkeep-fresh": "toolkeep, a fresh confined process",
    "celery-fresh": "Celery, a fresh process (max-tasks-per-child 1)",
    "ray-fresh": "Ray, a fresh process (max_calls 1)",
    "toolkeep-echo": "toolkeep, a WASM echo",
    "celery-ordinary": "Celery, ordinary mode (prefork)",
    "ray-ordinary": "Ray, ordinary mode",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long to measure."""

    rounds: int
    seconds: float
    """Of a turn with many in flight; a quarter more goes to calls one at a time."""


HOP, HOP_QUICK = Plan(rounds=5, seconds=2.0), Plan(rounds=1, seconds=0.5)
RIVALS, RIVALS_QUICK = Plan(rounds=3, seconds=2.0), Plan(rounds=1, seconds=0.1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What it costs to run a call on a worker over NATS.")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to measure")
    parser.add_argument(
        "--against", type=Path, help="another checkout of toolkeep, whose hop to compare with"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw numbers to FILE")
    options = parser.parse_args()
    print(
        f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    # As where it is installed, even if the environment forbids to write bytecode.
    for checkout in (BENCH.parent, *([options.against] if options.against else [])):
        compileall.compile_dir(checkout / "src", quiet=1)
    found: list[Lane] = []
    with empty_home() as folder, nats_server() as (url, nats):
        if {"confined", "hop"} & set(options.only):
            with hop_lanes(folder / "hop", url, nats, options) as lanes:
                measure(lanes, HOP_QUICK if options.quick else HOP, IN_FLIGHT)
                found += lanes
                report_hop({lane.name: lane for lane in lanes})
        if {"toolkeep", "celery", "ray"} & set(options.only):
            with worker_lanes(folder / "workers", url, options.only) as lanes:
                measure(lanes, RIVALS_QUICK if options.quick else RIVALS, RIVALS_IN_FLIGHT)
                found += lanes
                report_workers({lane.name: lane for lane in lanes})
    if options.json:
        raw = {
            lane.name: {"rates": lane.rates, "used_us": lane.used_us, "alone_s": lane.alone} for lane in found
        }
        options.json.write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")


def measure(lanes: Sequence[Lane], plan: Plan, in_flight: int) -> None:
    """Every lane once a round, another one first each time."""
    for lane in lanes:
        lane.warm_up(in_flight)
        settle()
    for number in range(plan.rounds):
        for place in range(len(lanes)):
            lanes[(place + number) % len(lanes)].turn(in_flight, plan.seconds)
            settle()


def settle() -> None:
    """Wait until nothing of ours makes processes ready any more, so that it takes nothing from the next."""
    until, used = time.monotonic() + 5, processor_seconds(os.getpid())
    while time.monotonic() < until:
        time.sleep(0.2)
        now = processor_seconds(os.getpid())
        if now - used < 0.2 * 0.4:
            return
        used = now


# --- lanes ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def hop_lanes(folder: Path, url: str, nats: int, options: argparse.Namespace) -> Iterator[list[Lane]]:
    """One server, one worker; two of each."""
    servers = {name: make_home(folder / name) for name in ("here", "one", "two", "second/two")}
    workers = {name: make_home(folder / name) for name in ("worker-1", "worker-2")}
    connect(
        url, {home: list(workers)[: 1 if name == "one" else 2] for name, home in servers.items()}, workers
    )
    with contextlib.ExitStack() as stack:
        start = stack.enter_context
        first, second = (start(worker(home, "--slots", str(2 * IN_FLIGHT))) for home in workers.values())
        server = start(Client("keep", *(servers[name] for name in ("here", "one", "two"))))
        lanes = []
        parts = {"server": [server.pid], "worker": [first], "nats": [nats]}
        both = parts | {"worker": [first, second]}
        if "confined" in options.only:
            lanes += [
                Lane(name="confined function, here", clients=[server], kind="here add"),
                Lane(name="confined function, on a worker", clients=[server], kind="one add", parts=parts),
            ]
        if "hop" in options.only:
            other = start(Client("keep", servers["second/two"]))
            bare = start(Client("bare", url))
            echo = start(process([sys.executable, "-m", "servers.nats_echo", url], cwd=BENCH))
            twice = both | {"server": [server.pid, other.pid]}
            answered = {"server": [bare.pid], "worker": [echo], "nats": [nats]}
            mine = {"server": [server.pid]}
            lanes += [
                Lane(name=FUNCTION, clients=[server], kind="here nothing", parts=mine),
                Lane(name=ECHO_HERE, clients=[server], kind="here echo", parts=mine),
                Lane(name=ECHO_THERE, clients=[server], kind="one echo", parts=parts),
                Lane(name="WASM echo, two workers", clients=[server], kind="two echo", parts=both),
                Lane(name="the same, two servers", clients=[server, other], kind="two echo", parts=twice),
                Lane(name="bare NATS request", clients=[bare], kind="request", parts=answered),
            ]
            if options.against:
                lanes += start(other_checkout(folder / "against", url, nats, options.against.resolve()))
        yield lanes


@contextlib.contextmanager
def other_checkout(folder: Path, url: str, nats: int, checkout: Path) -> Iterator[list[Lane]]:
    """A server and a worker of another checkout."""
    here, one, home = (make_home(folder / name) for name in ("here", "one", "worker-1"))
    connect(url, {here: [], one: ["worker-1"]}, {"worker-1": home})
    source = checkout / "src"
    with (
        worker(home, "--slots", str(2 * IN_FLIGHT), source=source) as first,
        Client("keep", here, one, source=source) as server,
    ):
        parts = {"server": [server.pid], "worker": [first], "nats": [nats]}
        kinds = {FUNCTION: "here nothing", ECHO_HERE: "here echo", ECHO_THERE: "one echo"}
        yield [
            Lane(name=f"{name}, {checkout.name}", clients=[server], kind=kind, parts=parts)
            for name, kind in kinds.items()
        ]


def connect(url: str, servers: dict[Path, list[str]], workers: dict[str, Path]) -> None:
    """Have these servers know these workers, by name, and all workers all servers."""
    keys = {name: key_of(state_of(home), "worker") for name, home in workers.items()}
    for home, names in servers.items():
        is_local = home.name == "here"
        configure(home, **({} if is_local else fleet(url, {name: keys[name] for name in names})))
    trusted = [{"key": key_of(state_of(home), "server")} for home in servers]
    for home in workers.values():
        configure(home, worker={"nats": {"servers": url}, "servers": trusted})


@contextlib.contextmanager
def worker_lanes(folder: Path, url: str, only: Sequence[str]) -> Iterator[list[Lane]]:
    """Everybody with 1, 2 and 4 workers."""
    starters: dict[str, Callable[[contextlib.ExitStack], list[Lane]]] = {
        "toolkeep": lambda stack: toolkeep_lanes(stack, folder, url),
        "celery": lambda stack: celery_lanes(stack, folder),
        "ray": lambda stack: ray_lanes(stack, folder),
    }
    with contextlib.ExitStack() as stack:
        lanes = []
        for name, start in starters.items():
            if name not in only:
                continue
            if name != "toolkeep" and importlib.util.find_spec(name) is None:
                print_notes([f"not installed: {name}; `bench/run fleet` installs it"])
                continue
            lanes += start(stack)
        yield lanes


def toolkeep_lanes(stack: contextlib.ExitStack, folder: Path, url: str) -> list[Lane]:
    """Four workers; a server for each number of them, all in one process."""
    workers = {f"worker-{number}": make_home(folder / f"worker-{number}") for number in range(max(WORKERS))}
    servers = {number: make_home(folder / f"server-{number}") for number in WORKERS}
    connect(url, {home: list(workers)[:number] for number, home in servers.items()}, workers)
    for home in workers.values():
        stack.enter_context(worker(home, "--slots", str(SLOTS)))
    client = stack.enter_context(Client("keep", *servers.values()))
    return [
        Lane(name=f"toolkeep-{mode}-{number}", clients=[client], kind=f"server-{number} {tool}")
        for mode, tool in ((FRESH, "add"), ("echo", "echo"))
        for number in WORKERS
    ]


def celery_lanes(stack: contextlib.ExitStack, folder: Path) -> list[Lane]:
    """Four workers in each mode."""
    broker = shutil.which("redis-server")
    if broker is None:
        print_notes(["Celery is left out: redis-server is not installed: apt-get install redis-server"])
        return []
    port = free_port()
    (folder / "redis").mkdir(parents=True)
    served = [broker, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder / "redis"]
    stack.enter_context(process([*map(str, served)]))
    os.environ["BENCH_REDIS"] = f"redis://127.0.0.1:{port}/0"
    print_notes([f"Celery {version('celery')}, its broker and result backend is {redis_version(broker)}"])
    program = [sys.executable, "-m", "celery", "-A", "rivals.celery_tasks", "worker"]
    for mode, limit in ((FRESH, ["--max-tasks-per-child", "1"]), (ORDINARY, [])):
        for place in range(max(WORKERS)):
            consumed = ",".join(f"{mode}-{number}" for number in WORKERS if place < number)
            named = ["--concurrency", str(SLOTS), "--queues", consumed, "--hostname", f"{mode}{place}@bench"]
            quiet = ["--loglevel", "ERROR", "--without-gossip", "--without-mingle"]
            stack.enter_context(process([*program, *named, *quiet, *limit], cwd=BENCH))
    queues = [f"{mode}-{number}" for mode in (FRESH, ORDINARY) for number in WORKERS]
    client = stack.enter_context(Client("celery", *queues))
    return [Lane(name=f"celery-{queue}", clients=[client], kind=queue) for queue in queues]


def redis_version(broker: str) -> str:
    """What the broker says of itself."""
    words = subprocess.run([broker, "--version"], check=True, capture_output=True, text=True).stdout.split()
    return " ".join(words[:1] + [word for word in words if word.startswith("v=")])


def ray_lanes(stack: contextlib.ExitStack, folder: Path) -> list[Lane]:
    """One node, whose processors stand for the slots of workers."""
    (folder / "ray").mkdir(parents=True, exist_ok=True)
    client = stack.enter_context(Client("ray", folder / "ray", *WORKERS))
    print_notes([f"Ray {version('ray')}, one node"])
    modes = (FRESH, ORDINARY)
    return [
        Lane(name=f"ray-{mode}-{number}", clients=[client], kind=f"{mode}-{number}")
        for mode in modes
        for number in WORKERS
    ]


# --- report --------------------------------------------------------------------------------------


def report_hop(lanes: dict[str, Lane]) -> None:
    """The table of one server and its workers, and what is wanted."""
    rows = []
    for lane in lanes.values():
        used = [
            f"{median(lane.used_us[who]):,.0f}" if who in lane.used_us else ""
            for who in ("server", "worker", "nats")
        ]
        rows.append([lane.name, f"{median(lane.rates):,.0f}", *used, f"{alone_ms(lane):.2f}"])
    columns = ["", "a second", "server µs", "worker µs", "NATS µs", "ms, one at a time"]
    print_table(f"{IN_FLIGHT} in flight; processor time for a call", columns, rows)
    notes = []
    if "confined function, here" in lanes:
        here, there = lanes["confined function, here"], lanes["confined function, on a worker"]
        notes += [
            f"confined: {median_ratio(there.rates, here.rates):.2f} × the server alone (wanted: 0.8)",
            f"one at a time, a worker adds {added_ms(there, here):.2f} ms to it (wanted: at most 1.5)",
        ]
    if ECHO_HERE in lanes:
        notes += hop_notes(lanes)
    others = sorted({name.rpartition(", ")[2] for name in lanes if name.startswith(f"{FUNCTION}, ")})
    notes += [f"{other}: {added_us(lanes, f', {other}')}" for other in others]
    print_notes(notes)


def hop_notes(lanes: dict[str, Lane]) -> list[str]:
    """What the hop adds, and how it compares."""
    here, one = lanes[ECHO_HERE], lanes[ECHO_THERE]
    two, twice = lanes["WASM echo, two workers"], lanes["the same, two servers"]
    bare = lanes["bare NATS request"]
    everyone = sum(median(used) for used in twice.used_us.values())
    most = (os.cpu_count() or 1) * 1e6 / everyone
    beside = [f"{median_ratio(lane.rates, bare.rates):.2f}" for lane in (one, two)]
    return [
        f"{added_us(lanes)} (wanted: at most 70 and 60)",
        f"{beside[0]} × bare requests with one worker, {beside[1]} × with two (wanted: 0.2)",
        f"two servers do {median_ratio(twice.rates, two.rates):.2f} × one, with two workers (wanted: 1.4)",
        f"their processor time leaves {most:,.0f} calls a second at most on {os.cpu_count()} cores",
        f"one at a time, the hop adds {added_ms(one, here):.2f} ms (wanted: at most 1.5)",
    ]


def added_us(lanes: dict[str, Lane], of: str = "") -> str:
    """What the hop adds. The run of the module is what an echo in the server takes beyond a function."""
    function, here, one = (lanes[name + of].used_us for name in (FUNCTION, ECHO_HERE, ECHO_THERE))
    ran = [mine - other for mine, other in zip(here["server"], function["server"], strict=True)]
    server = [mine - other for mine, other in zip(one["server"], function["server"], strict=True)]
    worker = [mine - other for mine, other in zip(one["worker"], ran, strict=True)]
    return (
        f"the hop adds {median(server):.0f} µs in the server and {median(worker):.0f} µs in the worker, "
        f"beside the run of the module ({median(ran):.0f} µs)"
    )


def report_workers(lanes: dict[str, Lane]) -> None:
    """The table of 1, 2 and 4 workers."""
    rows = []
    for mode, title in TITLES.items():
        mine = [lanes[f"{mode}-{number}"] for number in WORKERS if f"{mode}-{number}" in lanes]
        if not mine:
            continue
        fresh = [lanes.get(f"toolkeep-fresh-{number}") for number in WORKERS]
        ratios = [
            f"{median_ratio(ours.rates, lane.rates):.2f}" if ours is not None else ""
            for ours, lane in zip(fresh, mine, strict=True)
        ]
        rates = [f"{median(lane.rates):,.1f}" for lane in mine]
        rows.append([title, *rates, *ratios, f"{alone_ms(mine[0]):.1f}"])
    columns = [
        "tasks a second with",
        *(f"{number}" for number in WORKERS),
        *(f"toolkeep × {number}" for number in WORKERS),
        "ms, one at a time",
    ]
    print_table(f"1, 2 and 4 workers of {SLOTS} slots each, {RIVALS_IN_FLIGHT} in flight", columns, rows)
    print_notes(
        ["toolkeep ×: its fresh, confined process beside the line, within rounds; above 1, it is faster"]
    )


def alone_ms(lane: Lane) -> float:
    """One at a time, at the median of all."""
    return median([one for times in lane.alone for one in times]) * 1000


def added_ms(lane: Lane, other: Lane) -> float:
    """How much longer a call takes than another, one at a time, within rounds."""
    pairs = zip(lane.alone, other.alone, strict=True)
    return median([(median(mine) - median(others)) * 1000 for mine, others in pairs])


if __name__ == "__main__":
    main()
