"""From the start of a process until fifty tools are ready, in turn with a process that does nothing."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from measures.memory import BENCH
from measures.startup import EMPTY, compile_bytecode
from measures.statistics import median
from rivals.registry import Registry
from workloads.custom_tools import custom_tools

_FROM_CONFIG = """
import sys, time
start = time.perf_counter()
import toolkeep
keep = toolkeep.open_keep(project=sys.argv[1], built_in=False)
ready = time.perf_counter() - start
if len(keep.tools(enabled=True)) != 50:
    sys.exit(str(keep.start_up))
print(ready)
"""

_FROM_CODE = """
import importlib, sys, time
from workloads.{workload} import {make}
tools = {make}(50)
start = time.perf_counter()
registry = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])()
registry.register(*tools)
print(time.perf_counter() - start)
"""

_FUNCTIONS = _FROM_CODE.format(workload="functions", make="make_functions")
_DATA = _FROM_CODE.format(workload="custom_tools", make="custom_tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Milliseconds: of the whole process, what an empty one takes away, and from the import until ready."""

    name: str
    wall: float
    over_empty: float
    over_empty_best: float
    import_to_ready: float
    import_to_ready_best: float


def commands(registries: Sequence[type[Registry]], folder: Path) -> dict[str, list[str]]:
    """What is started, by name, but for the empty process."""
    project = folder / "project"
    file = project / ".agent" / "config.yml"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump({"tools": {"custom_tools": custom_tools()}}, sort_keys=False))
    python = [sys.executable, "-c"]
    found = {"toolkeep, .agent/config.yml": [*python, _FROM_CONFIG, str(project)]}
    for one in registries:
        place = [one.__module__, one.__name__]
        if one.name == "toolkeep":
            found["toolkeep, definitions as data"] = [*python, _DATA, *place]
        found[f"{one.name}, functions"] = [*python, _FUNCTIONS, *place]
    return found


def time_cold_starts(started: dict[str, list[str]], *, rounds: int) -> list[Start]:
    """All of them in turn; the bytecode is compiled before."""
    compile_bytecode()
    everything = {EMPTY: [sys.executable, "-c", "pass"], **started}
    walls: dict[str, list[float]] = {name: [] for name in everything}
    ready: dict[str, list[float]] = {name: [] for name in everything}
    for number in range(rounds + 1):
        for name, command in everything.items():
            wall, said = _run(command)
            if number:  # the first round fills the file cache
                walls[name].append(wall * 1e3)
                ready[name].append(float(said or 0) * 1e3)
    empty = walls[EMPTY]
    return [_start(name, walls[name], empty, ready[name]) for name in everything]


def _run(command: Sequence[str]) -> tuple[float, str]:
    environment = os.environ | {"PYTHONPATH": str(BENCH)}
    start = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return time.perf_counter() - start, done.stdout


def _start(name: str, walls: Sequence[float], empty: Sequence[float], ready: Sequence[float]) -> Start:
    over = [wall - nothing for wall, nothing in zip(walls, empty, strict=True)]
    return Start(
        name=name,
        wall=median(walls),
        over_empty=median(over),
        over_empty_best=min(walls) - min(empty),
        import_to_ready=median(ready),
        import_to_ready_best=min(ready),
    )
