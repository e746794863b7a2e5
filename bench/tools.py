"""What do the built-in tools cost, beside doing the same without a guard? Prints a table.

python bench/tools.py [--quick] [--tree DIR]

Every tool is called through the public face of a keep with its log on disk: validated, permitted, recorded,
and run in a fresh confined process. Beside it, in the same rounds: plain Python, `grep` and `rg` where there are
any, a bare `subprocess.run`, and bubblewrap. Without `--tree` one of 4,000 small files is made.
"""

import argparse
import asyncio
import logging
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from measures.home import empty_home
from measures.statistics import median, median_ratio, percentile
from tables import print_notes, print_table
from toolkeep import Keep, open_keep
from toolkeep.approval.question import Answer, Question

Lane = Callable[[], Awaitable[None]]
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "needle")
PATTERN = "need[a-z]e number [0-9]+7"


async def agree(_: Question) -> Answer:
    """A person who says yes to everything."""
    return Answer(verdict="approve", approver="ada", way="program")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What the built-in tools cost, beside no guard.")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    parser.add_argument("--tree", type=Path, default=None, help="search this tree instead of a made one")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with empty_home(), tempfile.TemporaryDirectory() as folder:
        tree = options.tree or _made(Path(os.path.realpath(folder)), 400 if options.quick else 4_000)
        os.chdir(tree)
        asyncio.run(_measure(rounds=5 if options.quick else 20))


def _made(folder: Path, files: int) -> Path:
    chance = random.Random(7)
    for number in range(files):
        path = folder / f"d{number % 40}" / f"f{number}.txt"
        path.parent.mkdir(exist_ok=True)
        lines = [
            " ".join(chance.choices(WORDS, k=8)) + f" number {chance.randrange(10_000)}" for _ in range(60)
        ]
        path.write_text("\n".join(lines) + "\n")
    return folder


async def _measure(rounds: int) -> None:
    async with open_keep(approver=agree) as keep:
        held = ["fs.read:.", "fs.write:.", "process.spawn:true"]
        permissions = [f"tool.{name}" for name in ("filesystem.read", "filesystem.write", "system.run")]
        keep.declare_agent("bench", capabilities=held, permissions=permissions)
        for title, lanes in _groups(keep).items():
            for lane in lanes.values():
                await lane()
            _print(title, await _interleaved(lanes, rounds))
    print_notes(
        ["the first of each table is the tool; × is its time beside each other one, in the same rounds"]
    )


def _groups(keep: Keep) -> dict[str, dict[str, Lane]]:
    file = next(path for path in Path().rglob("*.txt"))
    folder = file.parent
    true = shutil.which("true") or "true"
    searches = {
        "grep_search": _tool(keep, "grep_search", pattern=PATTERN, path="."),
        "grep -rnE": _program("grep", "-rnE", PATTERN, "."),
    }
    runs = {
        "run_command": _tool(keep, "run_command", command="true"),
        "subprocess.run": _program(true),
    }
    if shutil.which("rg"):
        searches["rg"] = _program("rg", "-n", PATTERN, ".")
    if shutil.which("bwrap"):
        runs["bwrap"] = _program("bwrap", "--ro-bind", "/", "/", "--unshare-all", true)
    return {
        "Reading a file": {
            "read_file": _tool(keep, "read_file", path=str(file)),
            "Path.read_text": _plain(file.read_text),
        },
        "Listing a folder": {
            "list_directory": _tool(keep, "list_directory", path=str(folder)),
            "os.scandir": _plain(lambda: [entry.stat().st_size for entry in os.scandir(folder)]),
        },
        "Searching the tree": searches,
        "Running a program": runs,
    }


def _tool(keep: Keep, name: str, **arguments: str) -> Lane:
    async def lane() -> None:
        result = await keep.call(name, arguments, agent="bench")
        if not result.ok:
            raise RuntimeError(result.text)

    return lane


def _plain(act: Callable[[], object]) -> Lane:
    async def lane() -> None:
        act()

    return lane


def _program(*command: str) -> Lane:
    async def lane() -> None:
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)  # noqa: ASYNC221 -- that is timed

    return lane


async def _interleaved(lanes: dict[str, Lane], rounds: int) -> dict[str, list[float]]:
    """Each lane once a round, another one first each time; workers get time to be ready again."""
    names = list(lanes)
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for place in range(len(names)):
            name = names[(place + number) % len(names)]
            await asyncio.sleep(0.1)
            start = time.perf_counter()
            await lanes[name]()
            found[name].append(time.perf_counter() - start)
    return found


def _print(title: str, found: dict[str, list[float]]) -> None:
    tool = next(iter(found.values()))
    rows = [
        [
            name,
            f"{median(one) * 1e3:.2f}",
            f"{percentile(one, 0.99) * 1e3:.2f}",
            f"{median_ratio(tool, one):.1f}",
        ]
        for name, one in found.items()
    ]
    print_table(f"{title}, ms", ["", "median", "p99", "×"], rows)


if __name__ == "__main__":
    main()
