"""How fast does a keep answer over HTTP, beside servers that check and record nothing? Prints tables.

toolkeep recognizes a token, decides by a policy and keeps its log on the disk. The servers take turns in
every round, and ratios are taken within rounds. See bench/README.md.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measures.home import empty_home
from measures.lanes import Lane, drive
from measures.mcp_load import META, Load, free_port, post, summary
from measures.statistics import median
from tables import print_notes, print_table

OURS = "toolkeep"
IN_MEMORY = "toolkeep, log in memory"
WATCHED = "toolkeep, metrics"
TRACED = "toolkeep, metrics and traces"
SERVERS_FOLDER = Path(__file__).resolve().parent / "servers"
Write = Callable[[str, str, int], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One server, and how it is called."""

    script: str
    write: Write
    needs: str = "toolkeep"
    options: tuple[str, ...] = ()
    is_in_memory: bool = False


def over_http(token: str, tool: str, number: int) -> bytes:
    body = json.dumps({"arguments": {"text": f"hello {number}"}}, separators=(",", ":")).encode()
    head = (
        f"POST /v1/tools/{tool}:call HTTP/1.1\r\nHost: 127.0.0.1:80\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def over_mcp(token: str, tool: str, number: int) -> bytes:
    params = {"name": tool, "arguments": {"text": f"hello {number}"}, "_meta": META}
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return post(json.dumps(message).encode(), "tools/call", tool)


CONTESTANTS = {
    OURS: Contestant(script="toolkeep_http", write=over_http),
    IN_MEMORY: Contestant(script="toolkeep_http", write=over_http, is_in_memory=True),
    "fastapi": Contestant(script="fastapi_http", write=over_http, needs="fastapi"),
    "fastmcp": Contestant(script="fastmcp_http", write=over_mcp, needs="fastmcp"),
}
OBSERVED = {
    IN_MEMORY: CONTESTANTS[IN_MEMORY],
    WATCHED: Contestant(script="toolkeep_http", write=over_http, options=("metrics",), is_in_memory=True),
    TRACED: Contestant(
        script="toolkeep_http", write=over_http, options=("metrics", "traces"), is_in_memory=True
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long to measure."""

    rounds: int
    calls_alone: int
    calls_together: int


FULL = Plan(rounds=5, calls_alone=200, calls_together=800)
QUICK = Plan(rounds=2, calls_alone=60, calls_together=300)


def main() -> int:
    """Measure, print, and write the raw numbers where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw numbers to FILE")
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    present = _present(CONTESTANTS)
    print_notes(f"{name}: not installed" for name in CONTESTANTS if name not in present)
    results: dict[str, Any] = {}
    with empty_home():
        for tool, effects in (("echo", "no write effects"), ("note", "write effects")):
            for connections in (1, 64):
                title = f"{effects}, {connections} connection{'' if connections == 1 else 's'}"
                loads = asyncio.run(_measure(present, tool, connections, plan))
                results[title] = {name: [asdict(one) for one in found] for name, found in loads.items()}
                _print(title, loads, base="")
        loads = asyncio.run(_measure(_present(OBSERVED), "echo", 64, plan))
        results["observed"] = {name: [asdict(one) for one in found] for name, found in loads.items()}
        _print("Metrics and traces on and off, 64 connections", loads, base=IN_MEMORY)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


def _present(contestants: dict[str, Contestant]) -> dict[str, Contestant]:
    has_memory = Path("/dev/shm").is_dir()
    return {
        name: one
        for name, one in contestants.items()
        if find_spec(one.needs) is not None and (has_memory or not one.is_in_memory)
    }


async def _measure(
    present: dict[str, Contestant], tool: str, connections: int, plan: Plan
) -> dict[str, list[Load]]:
    count = plan.calls_alone if connections == 1 else plan.calls_together
    found: dict[str, list[Load]] = {name: [] for name in present}
    async with AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(_served(contestant)) for name, contestant in present.items()
        }
        for client in clients.values():
            await client.run(tool, max(50, count // 5), connections)
        for _ in range(plan.rounds):
            for name, client in clients.items():
                found[name].append(await client.run(tool, count, connections))
    return found


@asynccontextmanager
async def _served(contestant: Contestant) -> AsyncIterator["Client"]:
    port = free_port()
    script = SERVERS_FOLDER / f"{contestant.script}.py"
    with tempfile.TemporaryDirectory(dir="/dev/shm" if contestant.is_in_memory else None) as home:
        project = f"{home}/project"
        os.mkdir(project)  # noqa: PTH102 -- at once, before the server starts
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(script), str(port), *contestant.options),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TOOLKEEP_HOME": f"{home}/state"},
            cwd=project,
        )
        try:
            if process.stdout is None:
                raise RuntimeError("no pipe")
            token = (await process.stdout.readline()).decode().strip()
            client = Client(port, token, contestant.write)
            await client.wait()
            yield client
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


class Client:
    """Speaks to one server over as many connections as there are calls in flight."""

    def __init__(self, port: int, token: str, write: Write) -> None:
        self._port = port
        self._token = token
        self._write = write

    async def wait(self) -> None:
        for _ in range(3000):
            try:
                lane = Lane(self._port)
            except OSError:
                await asyncio.sleep(0.01)
                continue
            lane.close()
            return
        raise RuntimeError("the server does not answer")

    async def run(self, tool: str, count: int, connections: int) -> Load:
        lanes = [Lane(self._port) for _ in range(connections)]
        requests = [self._write(self._token, tool, number) for number in range(count)]
        began = time.perf_counter()
        times = drive(lanes, requests, check_answer)
        elapsed = time.perf_counter() - began
        for lane in lanes:
            lane.close()
        return summary(times, elapsed)


def check_answer(number: int, answer: bytes) -> None:
    """Raise unless an answer holds the text of its own request."""
    if b'hello %d"' % number not in answer or b'"error":{' in answer:
        raise RuntimeError(f"not the answer to call {number}: {answer[:500].decode()}")


def _print(title: str, loads: dict[str, list[Load]], *, base: str) -> None:
    rivals = [base] if base else [name for name in loads if not name.startswith(OURS)]
    rows = [
        [
            name,
            f"{median([one.rate for one in found]):,.0f}",
            f"{median([one.p50_ms for one in found]):.2f}",
            f"{median([one.p99_ms for one in found]):.2f}",
            *(_ratio(found, loads[rival]) if name.startswith(OURS) else "" for rival in rivals),
        ]
        for name, found in loads.items()
    ]
    print_table(title, ["", "calls/s", "p50 ms", "p99 ms", *(f"× {rival}" for rival in rivals)], rows)


def _ratio(ours: list[Load], theirs: list[Load]) -> str:
    return f"{median([mine.rate / other.rate for mine, other in zip(ours, theirs, strict=True)]):.2f}"


if __name__ == "__main__":
    sys.exit(main())
