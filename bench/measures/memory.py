"""Resident memory a registered tool takes. Run as a program it measures itself: a child with nothing else."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

from measures.registration import keep_with
from workloads.real import read_tools

BENCH = Path(__file__).parent.parent
LARGEST = 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def bytes_per_tool(folder: Path, count: int) -> float:
    """Resident bytes a tool, over `count` tools in a child process."""
    command = [sys.executable, "-m", "measures.memory", str(folder.resolve()), str(count)]
    return float(subprocess.run(command, cwd=BENCH, check=True, capture_output=True, text=True).stdout)


def bytes_of_largest(folder: Path, count: int) -> float:
    """Resident bytes a tool, over `count` of the largest ones, under other names where there are too few."""
    command = [sys.executable, "-m", "measures.memory", str(folder.resolve()), str(count), "largest"]
    return float(subprocess.run(command, cwd=BENCH, check=True, capture_output=True, text=True).stdout)


def _measure(folder: Path, count: int, *, largest: bool) -> float:
    tools = read_tools(folder)
    if largest:
        tools = sorted(tools, key=lambda tool: len(json.dumps(tool[1])))[-LARGEST:]
    warm = keep_with(tools, 10)  # everything that registering imports is there before
    gc.collect()
    before = resident_bytes()
    keep = keep_with(tools, count)
    gc.collect()
    grown = resident_bytes() - before
    del warm, keep
    return grown / count


def resident_bytes() -> int:
    """What this process holds in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


if __name__ == "__main__":
    print(_measure(Path(sys.argv[1]), int(sys.argv[2]), largest=sys.argv[3:] == ["largest"]))
