"""How fast does a keep answer over MCP, beside servers that check and record nothing? Prints tables.

toolkeep decides by a policy and keeps its log on the disk. The servers take turns in every round, and the
ratios are taken within rounds. See bench/README.md.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measures.home import empty_home
from measures.mcp_load import (
    AS_INSTALLED,
    BENCH,
    IN_MEMORY,
    HttpClient,
    Load,
    StdioClient,
    command,
    discover,
    http_server,
    stdio_server,
)
from measures.statistics import median
from tables import print_notes, print_table

OURS = "toolkeep"
OURS_IN_MEMORY = "toolkeep, log in memory"
FLOOR = "nothing but a sync"
SERVERS = {
    OURS: "toolkeep_mcp",
    OURS_IN_MEMORY: f"toolkeep_mcp{IN_MEMORY}",
    FLOOR: "bare_mcp",
    "mcp low-level": "mcp_lowlevel",
    "fastmcp": "fastmcp_bench",
}
ALSO_OVER_HTTP = {
    "mcp low-level, as installed": f"mcp_lowlevel{AS_INSTALLED}",
    "fastmcp, as installed": f"fastmcp_bench{AS_INSTALLED}",
}
NEEDS = {"mcp low-level": "mcp", "fastmcp": "fastmcp"}
Open = Callable[..., AbstractAsyncContextManager[StdioClient | HttpClient]]
TRANSPORTS: dict[str, Open] = {"stdio": stdio_server, "HTTP": http_server}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long to measure."""

    rounds: int
    calls_alone: int
    calls_together: int
    starts: int


FULL = Plan(rounds=7, calls_alone=300, calls_together=1500, starts=7)
QUICK = Plan(rounds=2, calls_alone=100, calls_together=400, starts=2)


def main() -> int:
    """Measure, print, and write the raw numbers where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw numbers to FILE")
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    present = {
        name: module for name, module in SERVERS.items() if find_spec(NEEDS.get(name, "toolkeep")) is not None
    }
    if not Path("/dev/shm").is_dir():
        del present[OURS_IN_MEMORY]
    print_notes(f"{name}: not installed" for name in SERVERS if name not in present)
    results: dict[str, Any] = {}
    with empty_home():
        for transport, open_server in TRANSPORTS.items():
            for in_flight in (1, 32):
                servers = {**present, **_also(present)} if transport == "HTTP" else present
                loads = asyncio.run(_measure(open_server, servers, in_flight, plan))
                title = f"{transport}, {in_flight} in flight"
                results[title] = {name: [asdict(one) for one in found] for name, found in loads.items()}
                _print(title, loads)
        results["tools"] = asyncio.run(_many_tools(plan))
        results["first answer"] = _first_answers(present, plan)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


def _also(present: dict[str, str]) -> dict[str, str]:
    return {name: module for name, module in ALSO_OVER_HTTP.items() if name.partition(",")[0] in present}


async def _measure(
    open_server: Open, present: dict[str, str], in_flight: int, plan: Plan
) -> dict[str, list[Load]]:
    count = plan.calls_alone if in_flight == 1 else plan.calls_together
    found: dict[str, list[Load]] = {name: [] for name in present}
    from contextlib import AsyncExitStack

    async with AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(open_server(module)) for name, module in present.items()
        }
        for client in clients.values():
            await client.run(max(50, count // 5), in_flight)
        for _ in range(plan.rounds):
            for name, client in clients.items():
                found[name].append(await client.run(count, in_flight))
    return found


async def _many_tools(plan: Plan) -> dict[str, list[dict[str, float]]]:
    """Calls with ten tools and with a thousand, in turn, another first each round."""
    counts, rounds = (10, 1000), 2 * plan.rounds + 1
    found: dict[int, list[Load]] = {count: [] for count in counts}
    async with http_server("toolkeep_mcp", 10) as few, http_server("toolkeep_mcp", 1000) as many:
        clients = dict(zip(counts, (few, many), strict=True))
        for client in clients.values():
            await client.run(plan.calls_together, 32)
        for number in range(rounds):
            for count in counts if number % 2 else reversed(counts):
                found[count].append(await clients[count].run(plan.calls_together, 32))
    rows = []
    for count, loads in found.items():
        rate, used = median([one.rate for one in loads]), median([one.cpu_us for one in loads])
        rows.append([str(count), f"{rate:,.0f}", f"{used:.0f}"])
    print_table("HTTP, 32 in flight, by number of tools", ["tools", "calls/s", "processor µs"], rows)
    pairs = list(zip(found[10], found[1000], strict=True))
    rate = median([many.rate / few.rate for few, many in pairs])
    used = median([many.cpu_us / few.cpu_us for few, many in pairs])
    print_notes([f"with 1,000 tools {rate:.2f} × as fast as with 10, at {used:.2f} × the processor time"])
    return {str(count): [asdict(one) for one in loads] for count, loads in found.items()}


def _first_answers(present: dict[str, str], plan: Plan) -> dict[str, list[float]]:
    """From the start of the process to its first answer, in turn; toolkeep also as its own command."""
    commands = {
        name: command(module, "stdio", 1)
        for name, module in present.items()
        if name not in (OURS_IN_MEMORY, FLOOR)
    }
    commands["toolkeep mcp"] = [sys.executable, "-m", "toolkeep", "mcp"]
    times: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as project:
        for _ in range(plan.starts + 1):
            for name, words in commands.items():
                times[name].append(_first_answer(words, project))
    times = {name: values[1:] for name, values in times.items()}
    rows = [
        [name, f"{median(values) * 1000:.0f}", f"{min(values) * 1000:.0f}"] for name, values in times.items()
    ]
    print_table("From start to first answer, stdio", ["", "ms", "best"], rows)
    return times


def _first_answer(words: list[str], project: str) -> float:
    began = time.perf_counter()
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=project,
        env={**os.environ, "PYTHONPATH": str(BENCH)},
    )  # fmt: skip
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("no pipes")
    process.stdin.write(discover(1) + b"\n")
    process.stdin.flush()
    line = process.stdout.readline()
    elapsed = time.perf_counter() - began
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    if b"supportedVersions" not in line:
        raise RuntimeError(line.decode())
    return elapsed


def _print(title: str, loads: dict[str, list[Load]]) -> None:
    measured = [name for name in loads if name.startswith(OURS) or name == FLOOR]
    rivals = [name for name in loads if name not in measured]
    rows = []
    for name, found in loads.items():
        rows.append(
            [
                name,
                f"{median([one.rate for one in found]):,.0f}",
                f"{median([one.p50_ms for one in found]):.2f}",
                f"{median([one.p99_ms for one in found]):.2f}",
                f"{median([one.cpu_us for one in found]):.0f}",
                *(_ratio(found, loads[rival]) if name in measured else "" for rival in rivals),
            ]
        )
    print_table(
        title, ["", "calls/s", "p50 ms", "p99 ms", "processor µs", *(f"× {rival}" for rival in rivals)], rows
    )


def _ratio(ours: list[Load], theirs: list[Load]) -> str:
    return f"{median([mine.rate / other.rate for mine, other in zip(ours, theirs, strict=True)]):.1f}"


if __name__ == "__main__":
    sys.exit(main())
