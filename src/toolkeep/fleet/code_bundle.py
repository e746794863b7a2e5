"""The code of a tool as a server sends it to workers that lack it: the files of its tools file, or a module.

A bundle has names and contents, neither links nor modes. Before anything of it is used, the worker hashes
what it unpacked, by `code_hash_of`.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from toolkeep.authoring.wasm_tool import WasmTool
from toolkeep.calls import RegisteredTool
from toolkeep.config.code_copy import copied_files
from toolkeep.config.project_code import is_path
from toolkeep.config.settings import Run
from toolkeep.config.tools_file import find_tools_file
from toolkeep.errors import FileUnreadable
from toolkeep.execution.code_identity import WASM, hash_of
from toolkeep.limits import CODE_FILES, CODE_SOURCE_BYTES

MODULE: Final = "module.wasm"


class BundleInvalid(Exception):
    """A bundle is not what a server may send."""


class Bundle(msgspec.Struct, frozen=True, array_like=True):
    """The code of one tool."""

    kind: Literal["python", "wasm"]
    files: dict[str, bytes]
    """By their path."""
    target: str = ""
    """The file or module of tools."""
    reference: str = ""
    """The name of the tool in it."""
    output: Literal["json", "text"] = "json"
    fuel: int | None = None


def is_bundled(tool: RegisteredTool) -> bool:
    """Whether its code can be sent: it is a WASM module, or of a file of tools."""
    return bool(tool.code_hash) or _is_wasm(tool.runner)


def pack(tool: RegisteredTool, project: str, code_hash: str) -> bytes:
    """The code of a tool; raises `FileUnreadable` if it is not what the hash says any more."""
    made = _of_module(tool.runner, project, code_hash) if _is_wasm(tool.runner) else _of_file(tool, code_hash)
    return msgspec.msgpack.encode(made)


def _is_wasm(runner: Any) -> bool:
    return isinstance(runner, WasmTool) or getattr(runner, "kind", "") == WASM


def _of_file(tool: RegisteredTool, code_hash: str) -> Bundle:
    runner = tool.runner
    if not isinstance(runner, Run) or runner.code is None:
        raise FileUnreadable(tool.name, "is of no file of tools")
    place, _, reference = str(runner.target).rpartition(":")
    target = os.path.relpath(place, runner.code.root) if is_path(place) else place
    file = find_tools_file(target, runner.code.root)
    bundle = Bundle("python", dict(copied_files(file)), file.target, reference)
    if file.seal != code_hash:
        raise FileUnreadable(file.shown, "changed since its tools were registered")
    return bundle


def _of_module(runner: Any, project: str, code_hash: str) -> Bundle:
    if isinstance(runner, WasmTool):
        stated: dict[str, Any] = {"path": runner.path, "output": runner.output, "fuel": runner.fuel}
    else:
        stated = runner.target if isinstance(runner.target, dict) else {"path": runner.target}
    path = Path(project, stated["path"])
    with path.open("rb") as file:
        content = file.read(CODE_SOURCE_BYTES + 1)
    if hash_of([("", content)]) != code_hash:
        raise FileUnreadable(str(path), "changed since it was registered, or is too large to be sent")
    return Bundle("wasm", {MODULE: content}, output=stated.get("output") or "json", fuel=stated.get("fuel"))


def read_bundle(packed: bytes) -> Bundle:
    """Parse a bundle within its limits; raises `BundleInvalid`."""
    try:
        bundle = msgspec.msgpack.decode(packed, type=Bundle)
    except (msgspec.DecodeError, ValueError) as error:
        raise BundleInvalid("it cannot be read") from error
    if len(bundle.files) > CODE_FILES or sum(map(len, bundle.files.values())) > CODE_SOURCE_BYTES:
        raise BundleInvalid(f"it has more than {CODE_FILES} files or {CODE_SOURCE_BYTES} bytes")
    if bundle.kind == "wasm" and set(bundle.files) != {MODULE}:
        raise BundleInvalid("it holds more or less than a module")
    return bundle


def write_bundle(bundle: Bundle, folder: Path) -> None:
    """Write its files into an empty folder; raises `BundleInvalid`, with some of them written."""
    try:
        for name, content in bundle.files.items():
            target = folder.joinpath(*_parts(name))
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                file.write(content)
            target.chmod(0o444)  # for the sandbox too, which may run as another user
    except OSError as error:
        raise BundleInvalid(f"it cannot be written: {error.strerror}") from error


def _parts(name: str) -> Iterator[str]:
    """The parts of a path that stays inside its folder, and shows what it is."""
    for part in name.split("/"):
        # Hidden files may configure other programs; bytecode would run instead of the hashed source.
        if not part or part.startswith(".") or part == "__pycache__" or not part.isprintable():
            raise BundleInvalid("a path in it is not a plain one")
        yield part
