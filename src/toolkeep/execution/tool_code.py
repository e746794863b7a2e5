"""Where the code of a tool lies that a worker is to import; nothing is imported here."""

import importlib.machinery
import os
import sys
from pathlib import Path
from typing import NamedTuple

from toolkeep.sandbox.trusted import OURS, is_site


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
    place = reference.rpartition(":")[0]
    own = [place] if place.startswith("/") else _package(place.partition(".")[0], search)
    site = _site_folders()
    packages = dict.fromkeys([*own, OURS])
    outside = [path for path in packages if not any(path.startswith(f"{folder}/") for folder in site)]
    return ToolCode(tuple(site), tuple(outside))


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
    found = spec.submodule_search_locations or ([spec.origin] if spec.origin else [])
    return [os.path.realpath(path) for path in found]


def _site_folders() -> list[str]:
    found = (os.path.realpath(path) for path in sys.path if path and is_site(path))
    return [path for path in dict.fromkeys(found) if Path(path).is_dir()]
