"""Where the code of a tool lies that a worker is to import; nothing is imported here."""

import contextlib
import importlib.machinery
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from toolkeep.sandbox.import_guard import is_writable
from toolkeep.sandbox.trusted import OURS, is_site

_EDITABLE: Final = 64
"""Each is a mount; where there are more, a tool has its own package and what is installed."""


class ToolCode(NamedTuple):
    """Where the code of a tool lies: folders of installed packages, and packages by themselves."""

    site: tuple[str, ...]
    packages: tuple[str, ...]

    @property
    def shown(self) -> tuple[str, ...]:
        """What the worker may read of it."""
        return (*self.site, *self.packages)

    @property
    def ours(self) -> tuple[str, ...]:
        """Where toolkeep itself lies, unless it is among the installed packages."""
        return tuple(path for path in self.packages if path == OURS)


def find_code(reference: str, search: list[str]) -> ToolCode:
    """The code that `module:name` or `/path/file.py:name` needs; without a search, the modules in use."""
    own = own_code(reference, search)
    if not reference.startswith("/"):
        own = list(map(os.path.realpath, own))
    site = _site_folders()
    # The tool's own come last: of two packages of one name, a worker imports the last.
    packages = dict.fromkeys([*_editable(site), *own, OURS])
    outside = [path for path in packages if not any(path.startswith(f"{folder}/") for folder in site)]
    return ToolCode(tuple(site), tuple(outside))


def own_code(reference: str, search: list[str]) -> list[str]:
    """The file or the package of the tool itself, links and all."""
    place = reference.rpartition(":")[0]
    return [place] if place.startswith("/") else _package(place.partition(".")[0], search)


def _package(name: str, search: list[str]) -> list[str]:
    """The folder or file of a top-level package, found and not imported; without a search, the one in use."""
    if not search:
        spec = getattr(sys.modules.get(name), "__spec__", None)
    else:
        spec = importlib.machinery.PathFinder.find_spec(name, search)
    if spec is None:
        raise ValueError(f"there is no module '{name}'")
    if spec.origin in ("built-in", "frozen"):
        return []  # part of the interpreter
    return list(spec.submodule_search_locations or ([spec.origin] if spec.origin else []))


def _editable(site: list[str]) -> list[str]:
    """The packages and modules of editable installs: what lies in the folders that a .pth file names.

    Not the folders themselves: in a project without `src` that is all of it, with its `.env` and its `.git`.
    Lines that import something are not obeyed, as nothing is executed here. What a tool may write is left
    out: a module that it puts there would stand before an installed one in the workers of every other tool.
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
    if entry.is_symlink() or not name.isidentifier() or name in sys.stdlib_module_names:
        return False
    return entry.is_file() if entry.name.endswith(".py") else os.path.isfile(f"{entry.path}/__init__.py")


def _site_folders() -> list[str]:
    found = (os.path.realpath(path) for path in sys.path if path and is_site(path))
    return [path for path in dict.fromkeys(found) if Path(path).is_dir()]
