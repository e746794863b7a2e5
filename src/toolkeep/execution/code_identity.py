"""A hash of a tool's code that is the same on every machine that has the same code.

It covers the files of the tool's own package or script, a WASM module, or the words of a command. Packages
that the code imports, and the program of a command, are what is installed on the machine that runs it.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

from toolkeep.authoring.code_reference import NoCodeReference, find_reference, is_live
from toolkeep.authoring.wasm_tool import WasmTool
from toolkeep.calls import RegisteredTool
from toolkeep.execution.tool_code import own_code
from toolkeep.execution.tool_isolation import is_built_in, is_command, level_of, runs_in_worker
from toolkeep.version import __version__

WASM: Final = "wasm"
_FILES: Final = 10_000
"""A package with more files is no tool's own."""


def code_hash_of(tool: RegisteredTool, project: str) -> str | None:
    """The hash; None for a tool that only this process, or another server, can run."""
    if tool.code_hash:
        return tool.code_hash
    runner = tool.runner
    if isinstance(runner, WasmTool) or getattr(runner, "kind", "") == WASM:
        path = runner.path if isinstance(runner, WasmTool) else _module_path(runner.target)
        return _of_files((os.path.join(project, path),))
    if not runs_in_worker(tool):
        return None
    if is_built_in(tool):
        return f"toolkeep {__version__}"
    if is_command(tool):
        return hashlib.sha256(json.dumps(list(runner.target)).encode()).hexdigest()
    try:
        if is_live(runner):
            return _of_files(tuple(own_code(find_reference(runner), [])))
        return _of_files(tuple(runner.places or own_code(str(runner.target), [project, *sys.path])))
    except (NoCodeReference, ValueError):
        return None


def _module_path(target: object) -> str:
    return str(target["path"] if isinstance(target, dict) else target)


@lru_cache(maxsize=1_000)
def _of_files(places: tuple[str, ...]) -> str | None:
    """Of names inside each place and contents, in order; read once, like the code itself."""
    found: list[tuple[str, bytes]] = []
    for place in map(Path, places):
        files = sorted(_sources(place)) if place.is_dir() else [place]
        if not files or len(files) > _FILES:
            return None
        for file in files:
            name = file.relative_to(place).as_posix() if file != place else ""
            try:
                content = file.read_bytes()
            except OSError:
                return None
            found.append((name, content))
    return hash_of(found)


def hash_of(files: Iterable[tuple[str, bytes]]) -> str:
    """The hash of files by name, in this order."""
    known = hashlib.sha256()
    for name, content in files:
        known.update(f"{len(name)} {name} {len(content)}\n".encode() + content)
    return known.hexdigest()


def _sources(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts]


def isolation_of(tool: RegisteredTool) -> str:
    """How a run of the tool is confined: a level, or `wasm`."""
    is_wasm = isinstance(tool.runner, WasmTool) or getattr(tool.runner, "kind", "") == WASM
    return WASM if is_wasm else level_of(tool).value
