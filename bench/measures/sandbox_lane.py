"""One way to run a function in a process of its own for each call, driven over standard input.

python -m measures.sandbox_lane LANE

A first line says where toolkeep was imported from, if it was. Then each line that comes in is `[in_flight,
seconds, calls]`: so many callers call, one call after the other, until either is used up; zero stands for no
end. The answer is `[elapsed, latencies]` in seconds. Tools run at `strict` unless the lane says otherwise.
Only toolkeep's public API is used, so that other checkouts can be measured.
"""

import asyncio
import importlib.util
import itertools
import json
import logging
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

Call = Callable[[int], Awaitable[None]]
"""Makes the call of that number, and raises if its answer is wrong."""
Lane = Callable[[], AbstractAsyncContextManager[Call]]

BENCH = Path(__file__).resolve().parent.parent
TOOLS, AGENTS, FILES = 10, 10, 10
KEYS = TOOLS * AGENTS * FILES
MANY = 50
_ARGUMENTS = {"a": 1, "b": 2}
_IN_FLIGHT = 64

_NUMBERS = {
    "type": "object",
    "properties": {name: {"type": "integer", "description": "A number."} for name in "ab"},
    "required": ["a", "b"],
}
_FILE = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "maxLength": 500, "x-touches": "fs.read", "description": "The file."}
    },
    "required": ["path"],
}


def _definition(name: str, function: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "version": "1.0.0",
        "description": "Work out something small.",
        "side_effects": ["None"],
        "parameters": _NUMBERS,
        # With 64 in flight on a busy machine a call waits for longer than the usual minute.
        "constraints": {"required_isolation": "strict", "max_execution_time": 600},
        "run": {"python": function},
        **more,
    }


def _configure(*definitions: dict[str, Any]) -> None:
    """The user's own configuration, which counts without being accepted; JSON is YAML, too."""
    file = Path.home() / ".agent/config.yml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"tool_registry": {"custom_tools": definitions}}))


@asynccontextmanager
async def _referenced(function: str) -> AsyncIterator[Call]:
    """A function that a configuration names; the host never imports it."""
    from toolkeep import open_keep

    _configure(_definition("work", function))
    async with open_keep() as keep:
        yield lambda _: _sum(keep, "work")


@asynccontextmanager
async def _live(module: str, name: str) -> AsyncIterator[Call]:
    """A function with `@tool` that the host has imported and registered."""
    from toolkeep import open_keep

    async with open_keep() as keep:
        keep.register(getattr(importlib.import_module(module), name))
        yield lambda _: _sum(keep, name)


@asynccontextmanager
async def _read_file() -> AsyncIterator[Call]:
    from toolkeep import open_keep

    _write("file.txt")
    async with open_keep() as keep:
        yield lambda _: _text(keep, "read_file", "local", "file.txt")


@asynccontextmanager
async def _many(source: str, tools: int, agents: int, files: int) -> AsyncIterator[Call]:
    """Tools in files of their own, by reference; tool, agent and granted file change with each call."""
    from toolkeep import open_keep

    modules = Path.home() / "modules"
    modules.mkdir(exist_ok=True)
    for number in range(tools):
        (modules / f"tool_{number}.py").write_text(source)
    for number in range(files):
        _write(f"{number}.txt")
    more = {"side_effects": ["FsRead"], "capabilities": ["fs.read"], "parameters": _FILE}
    _configure(*(_definition(f"read_{n}", f"{modules}/tool_{n}.py:read", **more) for n in range(tools)))
    async with open_keep() as keep:
        for number in range(agents):
            keep.declare_agent(f"agent-{number}", capabilities=["fs.read:."])

        async def call(number: int) -> None:
            rest, tool = divmod(number, tools)
            rest, agent = divmod(rest, agents)
            await _text(keep, f"read_{tool}", f"agent-{agent}", f"{rest % files}.txt")

        yield call


def _write(file: str) -> None:
    Path(file).write_text("3")


async def _sum(keep: Any, tool: str) -> None:
    result = await keep.call(tool, _ARGUMENTS)
    if result.value != 3:
        raise RuntimeError(result.text)


async def _text(keep: Any, tool: str, agent: str, path: str) -> None:
    result = await keep.call(tool, {"path": path}, agent=agent)
    if result.text.strip() != "3":
        raise RuntimeError(result.text)


@asynccontextmanager
async def _cold(run: Callable[[list[str]], bytes], module: str, function: str) -> AsyncIterator[Call]:
    """A Python that starts for one call, imports the function and prints what it gives."""
    source = (
        f"import json, sys; sys.path.insert(0, {str(BENCH)!r}); from {module} import {function}; "
        f"print(json.dumps({function}(**json.loads(sys.argv[1]))))"
    )
    command = [sys.executable, "-I", "-c", source, json.dumps(_ARGUMENTS)]

    def once() -> None:
        if json.loads(run(command)) != 3:
            raise RuntimeError("a wrong answer")

    # Threads, since a process costs asyncio more: what is compared is the work, not the event loop.
    with ThreadPoolExecutor(_IN_FLIGHT) as threads:
        yield lambda _: asyncio.get_running_loop().run_in_executor(threads, once)


def _bare(command: list[str]) -> bytes:
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout


def _bubblewrapped(command: list[str]) -> bytes:
    """Walls like those of `strict`, as far as bubblewrap has them: no system call filter, no limits."""
    shown = {"/usr", "/lib", "/lib64", "/bin", sys.base_prefix, sys.prefix, str(BENCH / "workloads")}
    binds = [word for path in sorted(shown) for word in ("--ro-bind-try", path, path)]
    # No --new-session: the kernel may share processors between sessions (autogroup). One for each call took
    # three times the share of the others on a busy machine.
    walls = ["--unshare-all", "--die-with-parent", "--clearenv", "--cap-drop", "ALL"]
    inside = ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    return _bare(["bwrap", *walls, *inside, *binds, *command])


def _sandlocked(command: list[str]) -> bytes:
    from sandlock import Sandbox

    result = Sandbox(fs_readable=["/"], max_memory="512M", max_processes=10).run(command)
    if not result.success:
        raise RuntimeError("sandlock failed")
    return bytes(result.stdout)


_LIGHT, _FRAMES = ("workloads.light", "add"), ("workloads.frames", "total")
_READ = "from pathlib import Path\n\n\ndef read(path: str) -> str:\n    return Path(path).read_text()\n"
LANES: dict[str, Lane] = {
    "light, by reference": partial(_referenced, ":".join(_LIGHT)),
    "light, live": partial(_live, "workloads.isolated", "add_strict"),
    "light, live, none": partial(_live, "workloads.isolated", "add_here"),
    "light, live, standard": partial(_live, "workloads.isolated", "add_standard"),
    "light, live, restricted": partial(_live, "workloads.isolated", "add_restricted"),
    "light, bwrap": partial(_cold, _bubblewrapped, *_LIGHT),
    "light, sandlock": partial(_cold, _sandlocked, *_LIGHT),
    "light, cold": partial(_cold, _bare, *_LIGHT),
    "read_file": _read_file,
    "pandas, by reference": partial(_referenced, ":".join(_FRAMES)),
    "pandas, live": partial(_live, "workloads.isolated_frames", "total_strict"),
    "pandas, bwrap": partial(_cold, _bubblewrapped, *_FRAMES),
    "pandas, sandlock": partial(_cold, _sandlocked, *_FRAMES),
    "pandas, cold": partial(_cold, _bare, *_FRAMES),
    "light, 50 tools": partial(_many, _READ, MANY, 1, 1),
    "pandas, 50 tools": partial(_many, f"import pandas\n{_READ}", MANY, 1, 1),
    "1,000 keys": partial(_many, _READ, TOOLS, AGENTS, FILES),
}


def is_installed(lane: str) -> bool:
    """Whether what the lane needs beside toolkeep is here."""
    needs_pandas, rival = lane.startswith("pandas"), lane.rpartition(", ")[2]
    if needs_pandas and not importlib.util.find_spec("pandas"):
        return False
    if rival == "sandlock":
        return importlib.util.find_spec(rival) is not None
    return rival != "bwrap" or shutil.which(rival) is not None


async def _serve(lane: Lane) -> None:
    async with lane() as call:
        toolkeep = sys.modules.get("toolkeep")
        print(json.dumps(toolkeep and toolkeep.__file__), flush=True)
        numbers = itertools.count()
        # The event loop goes on meanwhile: a keep may have workers to make ready.
        while line := await asyncio.to_thread(sys.stdin.readline):
            in_flight, seconds, calls = json.loads(line)
            print(json.dumps(await _load(call, numbers, in_flight, seconds, calls)), flush=True)


async def _load(
    call: Call, numbers: "itertools.count[int]", in_flight: int, seconds: float, calls: int
) -> tuple[float, list[float]]:
    """How long it took until the last answer, and each call."""
    latencies: list[float] = []
    start = time.perf_counter()
    left = iter(range(calls) if calls else itertools.count())

    async def one_after_another() -> None:
        for _ in left:
            began = time.perf_counter()
            await call(next(numbers))
            latencies.append(time.perf_counter() - began)
            if seconds and time.perf_counter() - start > seconds:
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(one_after_another())
    return time.perf_counter() - start, latencies


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(_serve(LANES[sys.argv[1]]))
