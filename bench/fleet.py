"""What does it cost to run a call on a worker over NATS? Prints tables.

.venv/bin/python bench/fleet.py [--quick]

One NATS server, one worker process and this server share the same cores. The lanes take turns in each
round, and ratios are taken within rounds: the same confined function here and on the worker; a WASM echo,
whose run takes next to nothing, here and on the worker, beside bare requests over NATS. What the hop adds
is processor time: of this server beyond a call of a function in its own process, and of the worker beyond
the run of the module.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import nats
from nats.aio.msg import Msg
from wasmtime import wat2wasm

from measures.home import empty_home
from measures.process_tree import processor_seconds
from measures.statistics import median, percentile
from tables import print_notes, print_table
from toolkeep import Keep, open_keep
from wasm import ECHO

IN_FLIGHT = 64
FUNCTION = "def add(a, b):\n    return a + b\n"
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
SHARED = {
    "version": "1.0.0",
    "description": "Add, or give back.",
    "side_effects": ["None"],
    "parameters": NUMBERS,
}
RUNS = {
    "add": {"run": {"python": "{home}/tools.py:add"}, "constraints": {"required_isolation": "strict"}},
    "echo": {"run": {"wasm": "{home}/echo.wasm"}},
}
TOOLS = {"custom": [{"name": name, **SHARED, **run} for name, run in RUNS.items()]}
ARGUMENTS = {"a": 1, "b": 2}
HERE, THERE = "here", "on a worker"


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def nats_server() -> Iterator[tuple[str, int]]:
    """Its address and process id."""
    port = free_port()
    program = Path(sys.executable).parent / "nats-server"
    process = subprocess.Popen([program, "-a", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
        yield f"nats://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait()


def make_home(home: Path, **settings: object) -> None:
    """A home with the tools and a configuration of its own, which needs nobody's consent."""
    (home / ".agent").mkdir(parents=True)
    (home / "tools.py").write_text(FUNCTION)
    (home / "echo.wasm").write_bytes(wat2wasm(ECHO))
    tools = json.loads(json.dumps(TOOLS).replace("{home}", str(home)))
    (home / ".agent" / "config.yml").write_text(json.dumps({"tools": tools, **settings}))


def told(home: Path, *words: str) -> str:
    """What a command says."""
    command = [str(Path(sys.executable).parent / "toolkeep"), *words, "--project", str(home)]
    done = subprocess.run(command, env=os.environ | {"HOME": str(home)}, check=True, capture_output=True)
    return done.stdout.decode().strip()


@contextlib.contextmanager
def worker(home: Path, slots: int) -> Iterator[int]:
    """Its process id."""
    command = [
        str(Path(sys.executable).parent / "toolkeep"),
        "worker",
        "--slots",
        str(slots),
        "--project",
        str(home),
    ]
    environment = os.environ | {"HOME": str(home)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


async def together(make: Callable[[], Awaitable[object]], count: int, in_flight: int) -> list[float]:
    """So many at once, until all are done; the seconds that each took."""
    left, times = iter(range(count)), []

    async def lane() -> None:
        for _ in left:
            began = time.perf_counter()
            await make()
            times.append(time.perf_counter() - began)

    await asyncio.gather(*(lane() for _ in range(in_flight)))
    return times


class Lane:
    """One way to make calls, with what it took."""

    def __init__(self, name: str, make: Callable[[], Awaitable[object]], pids: dict[str, int]) -> None:
        self.name = name
        self._make = make
        self._pids = pids
        self.rates: list[float] = []
        self.used: dict[str, list[float]] = {"server": [], **{one: [] for one in pids}}
        self.alone: list[float] = []

    async def run(self, count: int, in_flight: int) -> None:
        """One round."""
        before = {name: processor_seconds(pid) for name, pid in self._pids.items()}
        server, began = time.process_time(), time.perf_counter()
        await together(self._make, count, in_flight)
        self.rates.append(count / (time.perf_counter() - began))
        self.used["server"].append((time.process_time() - server) / count * 1e6)
        for name, pid in self._pids.items():
            self.used[name].append((processor_seconds(pid) - before[name]) / count * 1e6)

    async def run_alone(self, count: int) -> None:
        """One at a time."""
        self.alone += await together(self._make, count, 1)

    def processor_us(self, who: str) -> float:
        """Processor time for a call, at the median of rounds."""
        return median(self.used[who]) if who in self.used else 0.0


def ratio(one: Lane, other: Lane) -> float:
    """How many times as many calls one does, within rounds."""
    return median([mine / theirs for mine, theirs in zip(one.rates, other.rates, strict=True)])


@contextlib.asynccontextmanager
async def bare(url: str) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """Requests over NATS without any of ours: an echo in a process of its own would cost the same."""
    one, other = await nats.connect(url), await nats.connect(url)

    async def answer(message: Msg) -> None:
        await message.respond(message.data)

    await other.subscribe("bench.echo", cb=answer)
    body = json.dumps(ARGUMENTS).encode()
    try:
        yield lambda: one.request("bench.echo", body, timeout=10)
    finally:
        await one.close()
        await other.close()


async def called(keep: Keep, name: str) -> None:
    """One call, which must succeed."""
    result = await keep.call(name, ARGUMENTS)
    if not result.ok:
        raise RuntimeError(result.text)


async def measure(keeps: dict[str, Keep], url: str, pids: dict[str, int], *, is_quick: bool) -> list[Lane]:
    """All lanes, in turns."""
    rounds, confined, hops = (2, 50, 300) if is_quick else (7, 300, 5000)
    here, there = keeps[HERE], keeps[THERE]
    nats_alone = {"nats": pids["nats"]}
    async with bare(url) as request:
        lanes = [
            (Lane("confined function, here", lambda: called(here, "add"), {}), confined),
            (Lane("confined function, on a worker", lambda: called(there, "add"), pids), confined),
            (Lane("function in this process", lambda: called(here, "add_here"), {}), hops),
            (Lane("WASM echo, here", lambda: called(here, "echo"), {}), hops),
            (Lane("WASM echo, on a worker", lambda: called(there, "echo"), pids), hops),
            (Lane("bare NATS request", request, nats_alone), hops),
        ]
        for lane, count in lanes:
            await lane.run_alone(5)  # the first calls start what the others use
            await lane.run(min(count, 100), IN_FLIGHT)
            lane.rates.clear()
            lane.alone.clear()
            for used in lane.used.values():
                used.clear()
        for _ in range(rounds):
            for lane, count in lanes:
                await lane.run(count, IN_FLIGHT)
                await lane.run_alone(max(10, count // 10))
    return [lane for lane, _ in lanes]


def add_here(a: int, b: int) -> int:
    """Add.

    Args:
        a: One number.
        b: Another one.
    """
    return a + b


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What it costs to run a call on a worker over NATS.")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with empty_home() as folder, nats_server() as (url, nats_pid):
        homes = {name: folder / name for name in ("here", "there", "worker")}
        for home in homes.values():
            make_home(home)
        (server_key, worker_key) = (
            told(homes["there"], "fleet", "key"),
            told(homes["worker"], "worker", "--show-key"),
        )
        address = {"nats": {"servers": url}}
        settings = {
            "there": {
                "fleet": {
                    **address,
                    "runs_on": {"add": "", "echo": ""},
                    "workers": [{"name": "one", "key": worker_key}],
                }
            },
            "worker": {"worker": {**address, "servers": [{"key": server_key}]}},
        }
        for name, more in settings.items():
            file = homes[name] / ".agent" / "config.yml"
            file.write_text(json.dumps(json.loads(file.read_text()) | more))
        with worker(homes["worker"], 2 * IN_FLIGHT) as worker_pid:
            asyncio.run(_main(homes, url, {"worker": worker_pid, "nats": nats_pid}, is_quick=options.quick))


async def _main(homes: dict[str, Path], url: str, pids: dict[str, int], *, is_quick: bool) -> None:
    keeps = {}
    for name, home in ((HERE, homes["here"]), (THERE, homes["there"])):
        os.environ["HOME"] = str(home)
        keeps[name] = open_keep(project=home)
        keeps[name].register(tool_here())
    lanes = await measure(keeps, url, pids, is_quick=is_quick)
    rows = [
        [
            lane.name,
            f"{median(lane.rates):,.0f}",
            *(
                f"{lane.processor_us(who):,.0f}" if who in lane.used else ""
                for who in ("server", "worker", "nats")
            ),
            f"{percentile(lane.alone, 50) * 1000:.2f}",
        ]
        for lane in lanes
    ]
    columns = ["", "a second", "server µs", "worker µs", "NATS µs", "ms, one at a time"]
    print_table(f"{IN_FLIGHT} in flight; processor time for a call", columns, rows)
    confined_here, confined_there, function, wasm_here, wasm_there, request = lanes
    module = wasm_here.processor_us("server") - function.processor_us("server")
    in_server = wasm_there.processor_us("server") - function.processor_us("server")
    in_worker = wasm_there.processor_us("worker") - module
    added_ms = (median(wasm_there.alone) - median(wasm_here.alone)) * 1000
    print_notes(
        [
            f"confined: a worker does {ratio(confined_there, confined_here):.2f} × this server alone",
            f"the hop adds {in_server:.0f} µs in the server",
            f"and {in_worker:.0f} µs in the worker, beside the run of the module ({module:.0f} µs)",
            f"{ratio(wasm_there, request):.2f} × bare NATS requests",
            f"one at a time, the hop adds {added_ms:.2f} ms",
        ]
    )
    for keep in keeps.values():
        keep.close()


def tool_here() -> object:
    """The function in this process."""
    from toolkeep import tool

    return tool(side_effects=["None"])(add_here)


if __name__ == "__main__":
    main()
