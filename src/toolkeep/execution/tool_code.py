"""Locates the code of a tool that a worker will import; imports nothing itself."""

import ast
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

_FINDERS: Final = "__editable___*_finder.py"
"""Where setuptools maps the packages of an editable install that has no folder of its own for them."""


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


def find_code(reference: str, search: list[str], places: tuple[str, ...] = ()) -> ToolCode:
    """Code that `module:name` or `/path/file.py:name` needs; without `search`, the loaded modules.

    `places` are its own files and package folders, and metadata, where they are known.
    """
    own = list(places) or own_code(reference, search)
    if not reference.startswith("/"):
        own = list(map(os.path.realpath, own))
    site = site_folders()
    # The tool's own come last: of two packages with one name, a worker imports the last.
    packages = dict.fromkeys([*editable_places(site), *own, OURS])
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
    if spec is None and search:
        mapped = [path for path in _mapped_modules(site_folders()) if _module_name(path) == name]
        if mapped:
            return mapped[:1]
    if spec is None:
        raise ValueError(f"there is no module '{name}'")
    if spec.origin in ("built-in", "frozen"):
        return []  # Part of the interpreter.
    return list(spec.submodule_search_locations or ([spec.origin] if spec.origin else []))


def editable_places(site: list[str]) -> list[str]:
    """Packages and modules of editable installs, in the folders that .pth files name and import hooks map.

    Not the folders themselves: in a project without `src` that would be everything, with its `.env` and
    `.git`. Import lines of .pth files are ignored, as nothing is executed here. What a tool may write is left
    out: a module that it puts there would shadow an installed one in the workers of every other tool.
    """
    found: list[str] = []
    for folder in dict.fromkeys(_pth_folders(site)):
        with contextlib.suppress(OSError):
            found += sorted(entry.path for entry in os.scandir(folder) if _is_module(entry.path))
    found = [path for path in dict.fromkeys((*found, *_mapped_modules(site))) if not is_writable(path)]
    return found if len(found) <= _EDITABLE else []


def _mapped_modules(site: list[str]) -> Iterator[str]:
    """Packages and modules that the import hooks of setuptools map to their source."""
    for folder in site:
        for file in sorted(Path(folder).glob(_FINDERS)):
            with contextlib.suppress(OSError, ValueError, SyntaxError):
                for name, place in _mapping(ast.parse(file.read_bytes())).items():
                    source = os.path.realpath(place if os.path.isdir(place) else f"{place}.py")
                    # A worker finds a package by the name of its folder.
                    if _module_name(source) == name and _is_module(source):
                        yield source


def _mapping(finder: ast.Module) -> dict[str, str]:
    """The dict that a finder assigns to MAPPING: read as a literal, not executed."""
    for line in finder.body:
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "MAPPING" for target in targets):
            found = ast.literal_eval(getattr(line, "value"))  # noqa: B009 -- of either kind of assignment
            return {str(name): str(place) for name, place in dict(found).items()}
    return {}


def _pth_folders(site: list[str]) -> Iterator[str]:
    for folder in site:
        for file in sorted(Path(folder).glob("*.pth")):
            with contextlib.suppress(OSError, ValueError):
                for line in file.read_text("utf-8").splitlines():
                    place = os.path.realpath(os.path.join(folder, line.strip()))
                    if not line.startswith(("#", "import ", "import\t")) and place not in site:
                        yield place


def _is_module(path: str) -> bool:
    name = _module_name(path)
    # A module named like a standard one would shadow it in every worker; a symlink may lead anywhere.
    if not name.isidentifier() or name in sys.stdlib_module_names or os.path.islink(path):
        return False
    return os.path.isfile(path if path.endswith(".py") else f"{path}/__init__.py")


def _module_name(path: str) -> str:
    return os.path.basename(path).removesuffix(".py")


def site_folders() -> list[str]:
    """Folders of installed packages that workers import from, in this order."""
    found = (os.path.realpath(path) for path in sys.path if path and is_site(path))
    return [path for path in dict.fromkeys(found) if Path(path).is_dir()]
