"""What many tools cost one process: time to register them, memory to keep them.

Run as a program it measures itself: a child with one framework and nothing else.
"""

import gc
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from measures.home import empty_home
from measures.memory import BENCH, resident_bytes
from rivals.field import gather_registries
from workloads.functions import make_functions
from workloads.real import read_admitted_tools

Given = Literal["functions", "data"]
Manner = Literal["one by one", "in one go"]

_WARM = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What it took."""

    seconds: float
    bytes_per_tool: float


def measure_keeping(framework: str, given: Given, manner: Manner, count: int, folder: Path) -> Kept:
    """Register that many tools in a child process."""
    command = [sys.executable, "-m", "measures.keeping", framework, given, manner]
    command += [str(count), str(folder.resolve())]
    done = subprocess.run(command, cwd=BENCH, check=True, capture_output=True, text=True)
    return Kept(**json.loads(done.stdout))


def _measure(framework: str, given: str, manner: str, count: int, folder: Path) -> dict[str, float]:
    (make,) = (one for one in gather_registries().present if one.name == framework)
    tools = _tools(given, count + _WARM, folder)
    warm = make()
    warm.register(*tools[count:])  # everything that registering imports is there before
    gc.collect()
    before = resident_bytes()
    registry = make()
    start = time.perf_counter()
    if manner == "in one go":
        registry.register(*tools[:count])
    else:
        for tool in tools[:count]:
            registry.register(tool)
    seconds = time.perf_counter() - start
    gc.collect()
    grown = resident_bytes() - before
    del warm, registry
    return {"seconds": seconds, "bytes_per_tool": grown / count}


def _tools(given: str, count: int, folder: Path) -> Sequence[Any]:
    return make_functions(count) if given == "functions" else read_admitted_tools(folder, count)


if __name__ == "__main__":
    framework, given, manner, count, folder = sys.argv[1:]
    with empty_home():
        print(json.dumps(_measure(framework, given, manner, int(count), Path(folder))))
