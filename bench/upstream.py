"""What does a keep add to a call of an upstream MCP server? Prints a table.

python bench/upstream.py [--quick]

The same server (`tests/sources/mcp/upstream.py`) answers: directly, unconfined, over pipes; in the sandbox,
without a keep; and through a keep with its log on disk, validated, permitted and recorded. All in the same
rounds, one call after the other.
"""

import argparse
import asyncio
import json
import logging
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec.structs import replace

from measures.home import empty_home
from measures.statistics import median, median_ratio, percentile
from tables import print_notes, print_table
from toolkeep import open_keep
from toolkeep.definitions.vocabulary import Danger
from toolkeep.execution.residence import recipe, residence_of
from toolkeep.execution.staying import Staying
from toolkeep.registry.given import Offer
from toolkeep.sandbox.pool import Pool
from toolkeep.sandbox.probe import probe
from toolkeep.sandbox.zygote import interpreter
from toolkeep.sources.mcp.importing import Wishes, import_listing
from toolkeep.sources.mcp.listing import Listing
from toolkeep.sources.mcp.talk import start_by_lines

SERVER = str(Path(__file__).resolve().parent.parent / "tests" / "sources" / "mcp" / "upstream.py")
ARGV = [interpreter(), "-I", "-S", SERVER]
Lane = Callable[[], Awaitable[None]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What a keep adds to a call of an MCP server.")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with empty_home(), tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        asyncio.run(_measure(50 if options.quick else 1_000))


async def _measure(rounds: int) -> None:
    direct = await asyncio.create_subprocess_exec(
        *ARGV, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    pool, findings = Pool(), probe()
    place = residence_of((), ARGV[0], (SERVER,), "", "/")
    program = Staying.read(ARGV).program("/", lambda name: name)
    talk = await start_by_lines(pool, recipe(place, findings), program, place.hosts)
    async with open_keep() as keep:
        keep.register(_offer(talk.tools))
        lanes: dict[str, Lane] = {
            "through a keep": lambda: _kept(keep),
            "in the sandbox, no keep": lambda: _spoken(talk),
            "directly": lambda: _asked(direct),
        }
        times = await _timed(lanes, rounds)
    await talk.close()
    await pool.close()
    direct.kill()
    await direct.wait()
    first = times["through a keep"]
    rows = [
        (name, f"{median(one):.3f}", f"{percentile(one, 99):.3f}", f"{median_ratio(first, one):.1f}")
        for name, one in times.items()
    ]
    print_table("A call of an MCP server, ms", ("", "median", "p99", "×"), rows)
    print_notes(["the first is the whole way; × is its time beside each other one, in the same rounds"])


def _offer(tools: list[dict[str, object]]) -> Offer:
    target = {"command": ARGV, "base": "/"}
    listing = Listing(server={}, tools=tuple(tools))
    (offer,) = import_listing(listing, Wishes(name="up", target=target))
    return replace(offer, tool=offer.tool.replace(danger=Danger.SAFE))  # type: ignore[union-attr]


async def _timed(lanes: dict[str, Lane], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in lanes}
    for number in range(rounds + 10):
        for name, lane in lanes.items():
            began = time.perf_counter()
            await lane()
            if number >= 10:
                times[name].append((time.perf_counter() - began) * 1000)
    return times


async def _kept(keep: object) -> None:
    result = await keep.call("echo", {"text": "hello"})  # type: ignore[attr-defined]
    assert result.value == "hello", result.text


async def _spoken(talk: object) -> None:
    await talk.conversation.call("echo", {"text": "hello"})  # type: ignore[attr-defined]


async def _asked(process: asyncio.subprocess.Process) -> None:
    params = {"name": "echo", "arguments": {"text": "hello"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    process.stdin.write(line.encode() + b"\n")  # type: ignore[union-attr]
    await process.stdout.readline()  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
