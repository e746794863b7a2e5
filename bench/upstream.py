"""What does a proxy before an MCP server add to a call? Prints tables.

bench/run upstream [--quick] [--json FILE]

The same client speaks to the same server (the SDK's low-level one): directly, through a keep that confines
it, checks, decides and records on disk, and through FastMCP's proxy, which does none of it. Over pipes all
the way, and over HTTP all the way. All take turns in every round, and ratios are taken within rounds. See
bench/README.md.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from measures.home import empty_home
from measures.mcp_load import (
    BENCH,
    IN_MEMORY,
    HttpClient,
    Load,
    StdioClient,
    command,
    http_server,
    stdio_server,
)
from measures.process_tree import processor_seconds
from measures.statistics import median, median_ratio
from tables import print_notes, print_table

DIRECT = "directly"
ADDRESS = "93.184.216.34"
"""A public address, in a network of our own: a keep dials no other."""
PROXIES = {
    "toolkeep": "toolkeep_proxy",
    "toolkeep, log in memory": f"toolkeep_proxy{IN_MEMORY}",
    "fastmcp": "fastmcp_proxy",
    "fastmcp, one client": "fastmcp_proxy_one",
}
Client = StdioClient | HttpClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn: how long calls took, and how much work the whole chain behind the client was."""

    load: Load
    cpu_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long to measure."""

    rounds: int
    calls: int


FULL, QUICK = Plan(rounds=9, calls=300), Plan(rounds=3, calls=60)


def main() -> int:
    """Measure, print, and write the raw numbers where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw numbers to FILE")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        return _in_a_network_of_our_own()
    _give_address()
    if find_spec("mcp") is None:
        print_notes(["mcp: not installed; there is no server to stand before: bench/run upstream"])
        return 1
    present = {
        name: module for name, module in PROXIES.items() if "fastmcp" not in name or find_spec("fastmcp")
    }
    plan = QUICK if options.quick else FULL
    results = {}
    with empty_home():
        for transport, opens in (("stdio", _by_pipes), ("HTTP", _by_http)):
            for in_flight in (1, 16):
                title = f"{transport}, {in_flight} in flight"
                turns = asyncio.run(_measure(opens, present, plan, in_flight))
                results[title] = {name: [asdict(one) for one in found] for name, found in turns.items()}
                _print(title, turns)
    print_notes(
        ["cpu: work a call of everything behind the client, the server itself too; × beside the first row"]
    )
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


def _in_a_network_of_our_own() -> int:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        print_notes(["needs `unshare` and `ip`: a keep dials public addresses alone"])
        return 1
    as_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    words = ["unshare", *as_user, "--net", sys.executable, *sys.argv, "--inside"]
    return subprocess.run(words, check=False).returncode


def _give_address() -> None:
    for words in (["link", "set", "lo", "up"], ["addr", "add", f"{ADDRESS}/32", "dev", "lo"]):
        subprocess.run(["ip", *words], check=True)


@asynccontextmanager
async def _by_pipes(present: dict[str, str]) -> AsyncIterator[dict[str, Client]]:
    upstream = [sys.executable, str(BENCH / "servers" / "mcp_lowlevel.py"), "stdio", "1"]
    async with AsyncExitStack() as stack:
        clients: dict[str, Client] = {DIRECT: await stack.enter_async_context(stdio_server("mcp_lowlevel"))}
        for name, module in present.items():
            clients[name] = await stack.enter_async_context(stdio_server(module, *upstream))
        yield clients


@asynccontextmanager
async def _by_http(present: dict[str, str]) -> AsyncIterator[dict[str, Client]]:
    """Each proxy has a server of its own behind it, so that the work of each chain can be told."""
    async with AsyncExitStack() as stack:
        clients: dict[str, Client] = {DIRECT: await stack.enter_async_context(http_server("mcp_lowlevel"))}
        for port, (name, module) in enumerate(present.items(), 8000):
            behind = await asyncio.create_subprocess_exec(
                *command("mcp_lowlevel", str(port), 1, ADDRESS), env={**os.environ, "PYTHONPATH": str(BENCH)}
            )
            stack.push_async_callback(_ended, behind)
            await HttpClient(port, address=ADDRESS).wait()
            url = f"http://{ADDRESS}:{port}/mcp"
            client = await stack.enter_async_context(http_server(module, url))
            client.behind = behind.pid
            clients[name] = client
        yield clients


async def _ended(process: asyncio.subprocess.Process) -> None:
    process.kill()
    await process.wait()


Opens = Callable[[dict[str, str]], AbstractAsyncContextManager[dict[str, Client]]]


async def _measure(
    opens: Opens, present: dict[str, str], plan: Plan, in_flight: int
) -> dict[str, list[Turn]]:
    async with opens(present) as clients:
        found: dict[str, list[Turn]] = {name: [] for name in clients}
        for client in clients.values():
            await client.run(plan.calls // 2, in_flight)
        for _ in range(plan.rounds):
            for name, client in clients.items():
                before = _work(client)
                load = await client.run(plan.calls, in_flight)
                spent = (_work(client) - before) / plan.calls * 1000
                found[name].append(Turn(load=load, cpu_ms=spent))
    return found


def _work(client: Client) -> float:
    return processor_seconds(client.process_id) + (processor_seconds(client.behind) if client.behind else 0.0)


def _print(title: str, turns: dict[str, list[Turn]]) -> None:
    direct = turns[DIRECT]
    rows = []
    for name, found in turns.items():
        loads = [one.load for one in found]
        rows.append(
            [
                name,
                f"{median([one.p50_ms for one in loads]):.2f}",
                f"{median([one.p99_ms for one in loads]):.2f}",
                f"{median([one.rate for one in loads]):,.0f}",
                f"{median([one.cpu_ms for one in found]):.2f}",
                f"{median_ratio([one.p50_ms for one in loads], [one.load.p50_ms for one in direct]):.1f}",
                f"{median_ratio([one.cpu_ms for one in found], [one.cpu_ms for one in direct]):.1f}",
            ]
        )
    print_table(title, ["", "p50 ms", "p99 ms", "calls/s", "cpu ms", "× p50", "× cpu"], rows)


if __name__ == "__main__":
    sys.exit(main())
