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
from typing import Final, NamedTuple

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
    runner = tool.runner
    # The seal of an installed module of tools covers its name alone.
    if tool.code_hash and runner.places:
        return tool.code_hash
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
        return _of_files(python_code(tool, project).places)
    except (NoCodeReference, ValueError):
        return None


class PythonCode(NamedTuple):
    """Where the code of a tool in Python is."""

    reference: str
    """`module:name` or `/path/file.py:name`."""
    places: tuple[str, ...]
    """Its own files and package folders."""


def python_code(tool: RegisteredTool, project: str) -> PythonCode:
    """Find the code of a tool in Python; raises `NoCodeReference` or `ValueError`."""
    runner = tool.runner
    if is_live(runner):
        reference = find_reference(runner)
        return PythonCode(reference, tuple(own_code(reference, [])))
    reference = str(runner.target)
    return PythonCode(reference, tuple(runner.places or own_code(reference, [project, *sys.path])))


def _module_path(target: object) -> str:
    return str(target["path"] if isinstance(target, dict) else target)


@lru_cache(maxsize=1_000)
def _of_files(places: tuple[str, ...]) -> str | None:
    """Of names inside each place and contents, in order; read once, like the code itself."""
    found: list[tuple[str, bytes]] = []
    for place in map(Path, places):
        files = files_of(place)
        if not files or len(files) > _FILES:
            return None
        try:
            found += [(name, file.read_bytes()) for name, file in files]
        except OSError:
            return None
    return hash_of(found)


def hash_of(files: Iterable[tuple[str, bytes]]) -> str:
    """The hash of files by name, in this order."""
    known = hashlib.sha256()
    for name, content in files:
        known.update(f"{len(name)} {name} {len(content)}\n".encode() + content)
    return known.hexdigest()


def files_of(place: Path) -> list[tuple[str, Path]]:
    """What is hashed of a place, by names inside it; the name of a single file is empty."""
    if not place.is_dir():
        return [("", place)]
    files = (file for file in place.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return [(file.relative_to(place).as_posix(), file) for file in sorted(files)]


def isolation_of(tool: RegisteredTool) -> str:
    """How a run of the tool is confined: a level, or `wasm`."""
    is_wasm = isinstance(tool.runner, WasmTool) or getattr(tool.runner, "kind", "") == WASM
    return WASM if is_wasm else level_of(tool).value
