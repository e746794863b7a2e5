"""Locates the code of a tool that a worker will import; imports nothing itself."""

import contextlib
import importlib.machinery
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from toolkeep.sandbox.import_guard import is_writable
from toolkeep.sandbox.trusted_paths import OURS, is_site

_EDITABLE: Final = 64
"""Each is a mount; with more, a tool gets only its own package and installed ones."""


class ToolCode(NamedTuple):
    """Where a tool's code lies: site-packages folders, and single packages."""

    site: tuple[str, ...]
    packages: tuple[str, ...]

    @property
    def shown(self) -> tuple[str, ...]:
        """What the worker may read."""
        return (*self.site, *self.packages)

    @property
    def ours(self) -> tuple[str, ...]:
        """toolkeep's own folder, unless it is among the installed packages."""
        return tuple(path for path in self.packages if path == OURS)


def find_code(reference: str, search: list[str]) -> ToolCode:
    """Code that `module:name` or `/path/file.py:name` needs; without `search`, the loaded modules."""
    own = own_code(reference, search)
    if not reference.startswith("/"):
        own = list(map(os.path.realpath, own))
    site = _site_folders()
    # The tool's own come last: of two packages with one name, a worker imports the last.
    packages = dict.fromkeys([*_editable(site), *own, OURS])
    outside = [path for path in packages if not any(path.startswith(f"{folder}/") for folder in site)]
    return ToolCode(tuple(site), tuple(outside))


def own_code(reference: str, search: list[str]) -> list[str]:
    """File or package of the tool itself, symlinks kept."""
    place = reference.rpartition(":")[0]
    return [place] if place.startswith("/") else _package(place.partition(".")[0], search)


def _package(name: str, search: list[str]) -> list[str]:
    """Folder or file of a top-level package, without importing it; without `search`, the loaded one."""
    if not search:
        spec = getattr(sys.modules.get(name), "__spec__", None)
    else:
        # PathFinder only searches; `importlib.util.find_spec` would import parent packages.
        spec = importlib.machinery.PathFinder.find_spec(name, search)
    if spec is None:
        raise ValueError(f"there is no module '{name}'")
    if spec.origin in ("built-in", "frozen"):
        return []  # Part of the interpreter.
    return list(spec.submodule_search_locations or ([spec.origin] if spec.origin else []))


def _editable(site: list[str]) -> list[str]:
    """Packages and modules of editable installs, in the folders that .pth files name.

    Not the folders themselves: in a project without `src` that would be everything, with its `.env` and
    `.git`. Import lines of .pth files are ignored, as nothing is executed here. What a tool may write is left
    out: a module that it puts there would shadow an installed one in the workers of every other tool.
    """
    found: list[str] = []
    for folder in dict.fromkeys(_pth_folders(site)):
        with contextlib.suppress(OSError):
            found += sorted(
                entry.path
                for entry in os.scandir(folder)
                if _is_module(entry) and not is_writable(entry.path)
            )
    return found if len(found) <= _EDITABLE else []


def _pth_folders(site: list[str]) -> Iterator[str]:
    for folder in site:
        for file in sorted(Path(folder).glob("*.pth")):
            with contextlib.suppress(OSError, ValueError):
                for line in file.read_text("utf-8").splitlines():
                    place = os.path.realpath(os.path.join(folder, line.strip()))
                    if not line.startswith(("#", "import ", "import\t")) and place not in site:
                        yield place


def _is_module(entry: "os.DirEntry[str]") -> bool:
    name = entry.name.removesuffix(".py")
    # A module named like a standard one would shadow it in every worker; a symlink may lead anywhere.
    if entry.is_symlink() or not name.isidentifier() or name in sys.stdlib_module_names:
        return False
    return entry.is_file() if entry.name.endswith(".py") else os.path.isfile(f"{entry.path}/__init__.py")


def _site_folders() -> list[str]:
    found = (os.path.realpath(path) for path in sys.path if path and is_site(path))
    return [path for path in dict.fromkeys(found) if Path(path).is_dir()]
