"""What many calls, deadlines and a killed host leave behind: nothing, and soon. Prints figures; for `scripts/soak`.

python -m tests.sandbox.soak --calls 10000

Everything goes through the public face of a keep. A bound that does not hold is named at the end, and the
exit status is 1.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from tests.sandbox.workers import descendants, mounts, open_descriptors
from toolkeep import CallLimits, Keep, ToolResult, open_keep
from toolkeep.escape_suite.baits import processes_named

LEVELS = ("standard", "strict", "restricted")
ROOT = Path(__file__).resolve().parent.parent.parent
DEADLINE_S = 0.3
TREE = 11
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 -- only where temporary files go
"""Where the keep writes: how long a disk takes is for the soak of the log."""
IN_FLIGHT = 16

MOST_OVERSHOOT_S = (0.05, 0.25, 1.0)
"""Median, 99th percentile, and most. A machine that others use as well takes some of it."""
MOST_GONE_S = 1.0
MOST_ORPHANED_S = 2.0
MOST_GROWTH_BYTES = 24 << 20
"""Between the first fifth of the calls, when caches and pools are full, and the last. Large answers leave gaps in
the heap: some 16 MiB up to 10,000 calls, and no more up to 25,000."""

EXPECTED = {
    "ok": {"ok"},
    "raise": {"ACODE-TSR-034"},
    "crash": {"ACODE-TSR-034"},
    "flood": {"ok"},
    "spin": {"ACODE-TSR-032"},
    "sleep": {"ACODE-TSR-032", "cancelled"},
}
"""How each kind of call may end."""

MIX = (*("ok",) * 80, *("raise",) * 6, *("crash",) * 4, *("flood",) * 4, *("sleep",) * 4, *("spin",) * 2)


def configuration() -> str:
    """The tools by reference; JSON is YAML."""
    text, number = {"type": "string", "maxLength": 20}, {"type": "integer", "minimum": 1, "maximum": 20}
    tools = [_tool(f"behave_{level}", level, "behave", kind=text) for level in LEVELS]
    tools.append(_tool("spin_as_a_tree", "standard", "spin_as_a_tree", mark=text, processes=number))
    return json.dumps({"tool_registry": {"custom_tools": tools}})


def _tool(name: str, level: str, function: str, **parameters: dict[str, Any]) -> dict[str, Any]:
    described = {name: {**one, "description": f"The {name}"} for name, one in parameters.items()}
    return {
        "name": name,
        "version": "1.0.0",
        "description": "Do something well or badly.",
        "side_effects": ["None"],
        "parameters": {"type": "object", "properties": described, "required": list(parameters)},
        "constraints": {"required_isolation": level},
        "run": {"python": f"tests.sandbox.soak_tools:{function}"},
    }


class Bounds:
    """Figures with their bounds, printed as they come."""

    def __init__(self) -> None:
        self.broken: list[str] = []

    def show(self, what: str, figure: float, most: float, unit: str) -> None:
        is_kept = figure <= most
        print(
            f"  {what:<58} {figure:>10.3f} {unit:<4} (most {most:g}){'' if is_kept else '  BROKEN'}",
            flush=True,
        )
        if not is_kept:
            self.broken.append(f"{what}: {figure:.3f} {unit}, at most {most:g}")

    def demand(self, what: str, is_kept: bool) -> None:
        print(f"  {what:<58} {'yes' if is_kept else 'NO'}", flush=True)
        if not is_kept:
            self.broken.append(what)


@contextlib.contextmanager
def keep_on_disk() -> Iterator[Keep]:
    limits = CallLimits(failures_in_a_row=10**9, tool_concurrency=256)
    with open_keep(project=Path.cwd(), built_in=False, call_limits=limits) as keep:
        yield keep


# --- deadlines -----------------------------------------------------------------------------------


async def overshoot(keep: Keep, calls: int, bounds: Bounds) -> None:
    """How long after its deadline a call that spins is answered, its processes gone."""
    print(f"\n{calls} calls that spin, one after the other, deadline {DEADLINE_S} s")
    for level in LEVELS[:2]:
        await keep.call(f"behave_{level}", {"kind": "ok"})
        late = []
        for _ in range(calls):
            start = time.monotonic()
            await keep.call(f"behave_{level}", {"kind": "spin"}, timeout_s=DEADLINE_S)
            late.append(time.monotonic() - start - DEADLINE_S)
        for name, figure, most in zip(("median", "p99", "most"), spread(late), MOST_OVERSHOOT_S, strict=True):
            bounds.show(f"{level}: answer after the deadline, {name}", figure, most, "s")


def spread(figures: list[float]) -> tuple[float, float, float]:
    """Median, 99th percentile, most."""
    ordered = sorted(figures)
    last = len(ordered) - 1
    return ordered[last // 2], ordered[last * 99 // 100], ordered[last]


async def tree(keep: Keep, rounds: int, bounds: Bounds) -> None:
    """How long after the deadline a tree of processes is gone."""
    print(f"\n{rounds} trees of {TREE} processes that spin, deadline 1 s")
    late, fewest = [], TREE
    for _ in range(rounds):
        mark = f"soak{secrets.token_hex(4)}"
        start = time.monotonic()
        call = asyncio.create_task(
            keep.call("spin_as_a_tree", {"mark": mark, "processes": TREE}, timeout_s=1.0)
        )
        await asyncio.sleep(0.8)
        fewest = min(fewest, len(processes_named(mark)))
        await call
        while processes_named(mark):  # noqa: ASYNC110 -- nobody tells when the last one is gone
            await asyncio.sleep(0.002)
        late.append(time.monotonic() - start - 1.0)
    bounds.demand(f"all {TREE} were seen running", fewest == TREE)
    bounds.show("gone after the deadline, most", max(late), MOST_GONE_S, "s")


# --- a host that is killed -----------------------------------------------------------------------


async def be_a_host() -> None:
    """Calls that run, workers that wait; says so and goes on until it is killed."""
    with keep_on_disk() as keep:
        for level in LEVELS:
            await keep.call(f"behave_{level}", {"kind": "ok"})
        kinds = ("spin", "sleep")
        running = [
            asyncio.ensure_future(keep.call(f"behave_{level}", {"kind": kind}))
            for level in LEVELS
            for kind in kinds
        ]
        running.append(
            asyncio.ensure_future(keep.call("spin_as_a_tree", {"mark": "soakhost", "processes": TREE}))
        )
        await asyncio.sleep(1.0)
        print("running", flush=True)
        await asyncio.gather(*running)


def killed_host(rounds: int, bounds: Bounds) -> None:
    """How long processes outlive a host that gets SIGKILL."""
    print(f"\n{rounds} hosts that are killed with 7 calls running, one of them a tree, and workers waiting")
    late, fewest = [], 10**9
    for _ in range(rounds):
        command = [sys.executable, "-m", "tests.sandbox.soak", "--be-a-host"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=_with_code()) as host:
            if host.stdout is None or host.stdout.readline() != b"running\n":
                bounds.demand("the host runs", is_kept=False)
                return
            below = {pid: _started(pid) for pid in descendants(host.pid)}
            fewest = min(fewest, len(below))
            host.kill()
            start = time.monotonic()
            host.wait()
        while (
            any(_started(pid) == when for pid, when in below.items() if when)
            and time.monotonic() < start + 10
        ):
            time.sleep(0.005)
        late.append(time.monotonic() - start)
    print(f"  at least {fewest} processes below the host")
    bounds.show("the last one gone after the kill, most", max(late), MOST_ORPHANED_S, "s")


def _with_code() -> dict[str, str]:
    return dict(os.environ) | {"PYTHONPATH": str(ROOT)}


def _started(pid: int) -> str:
    """When a process began, which tells it from a later one of its number; nothing for one that is gone."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if after_name[0] in "ZX" else after_name[19]


# --- many calls ----------------------------------------------------------------------------------


async def many(keep: Keep, calls: int, seed: int, bounds: Bounds) -> None:
    """Mixed calls, many at a time; how each ends, and whether memory grows."""
    print(f"\n{calls} mixed calls, {IN_FLIGHT} in flight")
    chance, ends, odd = random.Random(seed), Counter[str](), Counter[str]()  # noqa: S311 -- no secret
    waiting = asyncio.Semaphore(IN_FLIGHT)

    async def one(level: str, kind: str, is_cancelled: bool) -> None:
        call = keep.call(
            f"behave_{level}", {"kind": kind}, timeout_s=DEADLINE_S if kind in ("spin", "sleep") else None
        )
        try:
            ended = await _ended(call, chance.random() * DEADLINE_S / 2 if is_cancelled else None)
        finally:
            waiting.release()
        ends[f"{kind}: {ended}"] += 1
        if ended not in EXPECTED[kind]:
            odd[f"{kind} at {level} ended as {ended}"] += 1

    start = time.monotonic()
    first = 0
    async with asyncio.TaskGroup() as group:
        for number in range(calls):
            await waiting.acquire()
            kind = chance.choice(MIX)
            group.create_task(one(chance.choice(LEVELS), kind, kind == "sleep" and chance.random() < 0.5))
            if number == calls // 5:
                first = resident()
    last = resident()
    print(f"  {calls / (time.monotonic() - start):.0f} calls/s; {dict(sorted(ends.items()))}")
    print(
        f"  resident after {calls // 5} calls {first / 2**20:.1f} MiB, after {calls} {last / 2**20:.1f} MiB"
    )
    bounds.show("growth of the host's memory", (last - first) / 2**20, MOST_GROWTH_BYTES / 2**20, "MiB")
    bounds.demand(f"every call ended as it should {dict(odd) or ''}".rstrip(), not odd)


async def _ended(call: Awaitable[ToolResult], cancel_after_s: float | None) -> str:
    task = asyncio.ensure_future(call)
    if cancel_after_s is not None:
        await asyncio.sleep(cancel_after_s)
        task.cancel()
    try:
        result = await task
    except asyncio.CancelledError:
        return "cancelled"
    return "ok" if result.ok else str(result.code)


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


# --- what is left --------------------------------------------------------------------------------


def control_groups() -> int:
    """Those that are named for this process; others may make some at the same time."""
    mine = str(os.getpid())
    return sum(1 for path in Path("/sys/fs/cgroup").rglob("*") if path.is_dir() and mine in path.name)


def left(before: dict[str, int]) -> dict[str, int]:
    """What is here now and was not before."""
    return {name: count - before[name] for name, count in here().items() if count > before[name]}


LOOKS: dict[str, Callable[[], int]] = {
    "processes": lambda: len(descendants(os.getpid())),
    "descriptors": open_descriptors,
    "mounts": mounts,
    "control groups": control_groups,
    "scratch folders": lambda: len(list(Path(tempfile.gettempdir()).iterdir())),
}


def here() -> dict[str, int]:
    return {name: look() for name, look in LOOKS.items()}


async def soak(calls: int, seed: int, bounds: Bounds) -> None:
    rounds = max(3, min(100, calls // 100))
    with keep_on_disk() as keep:
        first = await keep.call("behave_standard", {"kind": "ok"})
        bounds.demand(f"the first call is answered {first.error or ''}".rstrip(), first.ok)
    before = here()
    async with keep_of_this_loop() as keep:
        await overshoot(keep, rounds, bounds)
        await tree(keep, max(3, rounds // 5), bounds)
        await many(keep, calls, seed, bounds)
    found = left(before)
    bounds.demand(f"nothing is left {found or ''}".rstrip(), not found)


@contextlib.asynccontextmanager
async def keep_of_this_loop() -> AsyncIterator[Keep]:
    with keep_on_disk() as keep:
        async with keep:
            yield keep


def main() -> None:
    parser = argparse.ArgumentParser(description="What many calls in workers leave behind.")
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--be-a-host", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if options.be_a_host:
        asyncio.run(be_a_host())
        return
    bounds = Bounds()
    with tempfile.TemporaryDirectory(prefix="toolkeep-soak-", dir=IN_MEMORY) as folder:
        for name in ("home", "state", "project", "scratch"):
            (Path(folder) / name).mkdir(mode=0o700)
        os.environ.update(HOME=f"{folder}/home", TOOLKEEP_HOME=f"{folder}/state")
        tempfile.tempdir = f"{folder}/scratch"
        os.chdir(f"{folder}/project")
        Path(folder, "home/.agent").mkdir()
        Path(folder, "home/.agent/config.yml").write_text(configuration())
        print(f"seed {options.seed}")
        asyncio.run(soak(options.calls, options.seed, bounds))
        killed_host(max(3, min(20, options.calls // 500)), bounds)
        os.chdir("/")
    if bounds.broken:
        sys.exit(json.dumps(bounds.broken, indent=2))


if __name__ == "__main__":
    main()
