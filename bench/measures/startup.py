"""Start-up of processes, run in turn: an empty interpreter, the command, a keep with fifty tools."""

import compileall
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import toolkeep
from measures.statistics import median

EMPTY = "python -c pass"
VALIDATE = "toolkeep validate"
FIFTY = "50 tools ready"

_REGISTER_FIFTY = """
import json, sys
rows = [json.loads(line) for line, _ in zip(open(sys.argv[1]), range(50))]
import toolkeep
keep = toolkeep.open_keep()
for number, row in enumerate(rows):
    schema = row.get("schema_normalised") or row["schema"]
    data = {"name": f"tool_{number}", "description": row["description"], "parameters": schema}
    keep.register(toolkeep.ToolDefinition.from_elsewhere(data))
"""


def commands(folder: Path) -> dict[str, list[str]]:
    """What is started, by name."""
    return {
        EMPTY: [sys.executable, "-c", "pass"],
        VALIDATE: [sys.executable, "-m", "toolkeep", "validate", "agent_hello_world", '{"name": "Ada"}'],
        FIFTY: [sys.executable, "-c", _REGISTER_FIFTY, str((folder / "tools.jsonl").resolve())],
    }


def time_startup(started: Mapping[str, Sequence[str]], *, rounds: int) -> dict[str, float | None]:
    """Median milliseconds of each command; None for one that fails."""
    compile_bytecode()
    working = {name: command for name, command in started.items() if _succeeds(command)}
    seconds: dict[str, list[float]] = {name: [] for name in working}
    for _ in range(rounds):
        for name, command in working.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds[name].append(time.perf_counter() - start)
    return {name: median(seconds[name]) * 1e3 if name in seconds else None for name in started}


def compile_bytecode() -> None:
    """Of toolkeep and of everything installed, so that no start pays for another's compiling."""
    for place in (*toolkeep.__path__, sysconfig.get_path("purelib")):
        compileall.compile_dir(place, quiet=2, workers=0)


def _succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
