"""The code of a tool as a server sends it to workers that lack it: a file of tools, a package, or a module.

A bundle has names and contents, neither links nor modes. Before anything of it is used, the worker hashes
what it unpacked, by `code_hash_of`.
"""

import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from toolkeep.authoring.code_reference import NoCodeReference
from toolkeep.authoring.wasm_tool import WasmTool
from toolkeep.calls import RegisteredTool
from toolkeep.config.code_copy import copied_files
from toolkeep.config.project_code import is_path
from toolkeep.config.settings import Run
from toolkeep.config.tools_file import find_tools_file
from toolkeep.errors import FileUnreadable
from toolkeep.execution.code_identity import WASM, files_of, hash_of, python_code
from toolkeep.execution.tool_isolation import is_python
from toolkeep.fleet.installed_package import Pin, pin_of
from toolkeep.limits import CODE_FILES, CODE_SOURCE_BYTES

MODULE: Final = "module.wasm"
_MACHINE_CODE: Final = re.compile(r"\.(so|pyd|dylib|dll)(\.|$)")


class BundleInvalid(Exception):
    """A bundle is not what a server may send."""


class Bundle(msgspec.Struct, frozen=True, array_like=True):
    """The code of one tool."""

    kind: Literal["python", "package", "wasm"]
    files: dict[str, bytes]
    """By their path."""
    target: str = ""
    """The file or module that has the tool."""
    reference: str = ""
    """The name of the tool in it."""
    output: Literal["json", "text"] = "json"
    fuel: int | None = None
    pin: Pin | None = None
    """The distribution of a package."""
    machine: str = ""
    """What extension modules in it are made for."""


def machine_here() -> str:
    """The Python and the platform that extension modules must be made for."""
    return f"{sysconfig.get_config_var('SOABI') or sys.implementation.cache_tag}, {sysconfig.get_platform()}"


def has_machine_code(files: Iterable[str]) -> bool:
    """Whether extension modules or libraries are among the files."""
    return any(_MACHINE_CODE.search(name.rpartition("/")[2]) for name in files)


def is_bundled(tool: RegisteredTool) -> bool:
    """Whether its code can be sent, if nothing is in the way: it is a WASM module, or in Python."""
    return _is_wasm(tool.runner) or is_python(tool)


def pack(tool: RegisteredTool, project: str, code_hash: str) -> bytes:
    """The code of a tool; raises `FileUnreadable` if it cannot be sent, or is not what the hash says."""
    if _is_wasm(tool.runner):
        made = _of_module(tool.runner, project, code_hash)
    elif tool.code_hash and tool.runner.places:
        made = _of_file(tool, code_hash)
    else:
        made = _of_package(tool, project, code_hash)
    if made.kind != "wasm" and has_machine_code(made.files):
        made = replace(made, machine=machine_here())
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


def _of_package(tool: RegisteredTool, project: str, code_hash: str) -> Bundle:
    """The top-level package that has the function, whole; or the single module."""
    try:
        reference, places = python_code(tool, project)
    except (NoCodeReference, ValueError) as error:
        raise FileUnreadable(tool.name, f"its code is not found any more: {error}") from error
    module, _, name = reference.rpartition(":")
    if is_path(module):
        raise FileUnreadable(module, "is a script; put the tool into a file of tools, or into a package")
    top = module.partition(".")[0]
    place = places[0] if len(places) == 1 else ""
    if not Path(place if place.endswith(".py") else f"{place}/__init__.py").is_file():
        what = "is a namespace package, or no package of Python files"
        raise FileUnreadable(top, f"{what}, which is not sent; install it on the worker")
    pin, files = pin_of(place), _package_files(Path(place))
    if hash_of((name.partition("/")[2], content) for name, content in files.items()) != code_hash:
        raise FileUnreadable(top, "changed since its tools were registered; start the server again")
    return Bundle("package", files, module, name, pin=pin)


def _package_files(place: Path) -> dict[str, bytes]:
    """What `code_hash_of` hashes, by paths from the folder that has the package."""
    if place.is_dir() and any(path.is_symlink() for path in place.rglob("*")):
        raise FileUnreadable(place.name, "has links in it, which are not sent; install it on the worker")
    found, left = {}, CODE_SOURCE_BYTES
    for count, (inside, file) in enumerate(files_of(place)):
        left -= file.stat().st_size
        if left < 0 or count >= CODE_FILES:
            what = f"has more than {CODE_FILES} files or {CODE_SOURCE_BYTES} bytes, too much to be sent"
            raise FileUnreadable(place.name, f"{what}; install it on the worker")
        name = f"{place.name}/{inside}" if inside else place.name
        try:
            tuple(_parts(name))
        except BundleInvalid as error:
            raise FileUnreadable(name, "is hidden, or has an odd name, and is not sent") from error
        found[name] = file.read_bytes()
    return found


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
