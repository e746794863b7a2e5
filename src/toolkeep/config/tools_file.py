"""Locates a Python file or module of tools in a project, without importing it (REG-5, SBX-1).

In: a path or a dotted module name, as a person or a configuration wrote it. Out: the files that it consists
of, their SHA-256, and what a worker is shown of them. Symlinks among these files are refused: a link could be
pointed elsewhere between the hash and the import.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from toolkeep.config.accepted_code import AcceptedCode
from toolkeep.config.project_code import ABSENT, TOOLS, hash_code, is_path, named_files
from toolkeep.config.settings import CodeCopy, ConfiguredToolsFile
from toolkeep.errors import FileUnreadable
from toolkeep.json_values.canonical import canonical_hash


class ToolsFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file or module of tools, and the project's code that it consists of."""

    shown: str
    """As it was named."""
    target: str
    """Its path from the root, or its dotted name."""
    root: str
    """The real folder that its imports are searched in."""
    place: str
    """What a worker imports: `/path/file.py` or `package.module`."""
    places: tuple[str, ...]
    """Files and package folders that a worker is shown; empty for a module outside the root."""
    code: Mapping[str, str]
    """The SHA-256 of each file, by its path from the root."""
    copy: CodeCopy | None = None
    """What it is a copy of, if it is one."""
    command: str = ""
    """What accepts it in the project; empty if it is accepted with the configuration that names it."""

    @property
    def key(self) -> str:
        """What an acceptance of it is stored under."""
        return self.place if is_path(self.place) else f"{self.root}:{self.place}"

    @property
    def content(self) -> dict[str, Any]:
        """What a person accepts."""
        return {"tools": self.target, "code": dict(self.code)}

    @property
    def seal(self) -> str:
        """The hash of what a person accepts."""
        return canonical_hash(self.content)

    def accepted_code(self) -> AcceptedCode:
        """The check before each call that the code is still the same."""
        return AcceptedCode({TOOLS: self.target}, Path(self.root), self.code, command=self.command)


def find_tools_file(name: str, root: Path, *, shown: str = "") -> ToolsFile:
    """A path from the root, or a dotted module name; raises `FileUnreadable`."""
    shown = shown or name
    real_root = Path(os.path.realpath(root))
    if not is_path(name):
        return _of_module(name, real_root)
    path = Path(os.path.normpath(real_root / name))
    if os.path.realpath(path) != str(path):
        raise FileUnreadable(shown, "is a symlink, or is reached through one; name the real file")
    if not path.is_relative_to(real_root):
        raise FileUnreadable(shown, f"is outside {real_root}; tools of a project must be inside it")
    if not path.is_file():
        raise FileUnreadable(shown, "there is no such file")
    target = os.path.relpath(path, real_root)
    code = _hashed(shown, target, real_root)
    places = (*_places(code, real_root, path.parent), str(path))
    return ToolsFile(
        shown=shown,
        target=target,
        root=str(real_root),
        place=str(path),
        places=tuple(dict.fromkeys(places)),
        code=code,
    )


def find_configured(said: ConfiguredToolsFile) -> ToolsFile:
    """The file that a configuration names: of the project's with the code that a person accepted."""
    if said.is_project:
        return replace(find_tools_file(said.name, Path(said.root)), code=said.code)
    if not is_path(said.name):
        return find_tools_file(said.name, Path(said.root))
    path = Path(os.path.realpath(Path(said.root) / os.path.expanduser(said.name)))  # noqa: PTH111 -- never raises
    return find_tools_file(str(path), path.parent, shown=said.name)


def _of_module(name: str, root: Path) -> ToolsFile:
    if not all(part.isidentifier() for part in name.split(".")):
        raise FileUnreadable(name, "is neither the path of a .py file nor the name of a module")
    code = _hashed(name, name, root)
    places = tuple(dict.fromkeys(_places(code, root, root)))
    return ToolsFile(shown=name, target=name, root=str(root), place=name, places=places, code=code)


def _hashed(name: str, target: str, root: Path) -> dict[str, str]:
    files = named_files({TOOLS: target}, root)
    for file in files:
        if os.path.realpath(file) != str(file):
            raise FileUnreadable(name, f"{os.path.relpath(file, root)} is a symlink; name the real file")
    code = hash_code(files, root)
    if missing := [file for file, digest in code.items() if digest == ABSENT]:
        raise FileUnreadable(name, f"{missing[0]} cannot be read")
    return code


def _places(code: Mapping[str, str], root: Path, folder: Path) -> Iterator[str]:
    """The top-level module or package of each file, in each folder that is searched; the nearest last."""
    for top in dict.fromkeys((root, root / "src", folder)):
        for name in code:
            file = root / name
            if not file.is_relative_to(top):
                continue
            first = top / file.relative_to(top).parts[0]
            if first == file or (first / "__init__.py").is_file():
                yield str(first)
