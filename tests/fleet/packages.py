"""Packages that tests install into a site-packages folder of their own."""

import json
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module, invalidate_caches
from pathlib import Path
from types import ModuleType

import pytest

GREET: Mapping[str, str] = {
    "greet_tools/__init__.py": (
        "from importlib.metadata import version\nfrom importlib.resources import files\n"
        "WORDS = (files(__name__) / 'words.txt').read_text()\n__version__ = version('Greet.Tools')\n"
    ),
    "greet_tools/tools.py": (
        "from greet_tools import WORDS, __version__\nfrom toolkeep import tool\n\n"
        "@tool(effects='none', constraints={'required_isolation': 'strict'})\n"
        "def greet(name: str) -> str:\n    '''Greet somebody.'''\n"
        "    return f'{WORDS} {name} ({__version__})'\n"
    ),
    "greet_tools/words.txt": "hello",
}
"""A package with a tool, which reads a file of its own and its own version."""


class Site:
    """A folder of installed packages, the first that is searched."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "site-packages"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._monkeypatch = monkeypatch
        monkeypatch.syspath_prepend(str(self.folder))

    def install(
        self,
        name: str,
        version: str = "1.2",
        files: Mapping[str, str | bytes] | None = None,
        *,
        requires: Iterable[str] = (),
        also: Iterable[str] = (),
    ) -> None:
        """As an installer does; the files of `also` are empty."""
        files = {**(files or {}), **dict.fromkeys(also, "")}
        write(self.folder, files)
        info = self._metadata(name, version, requires)
        listed = (*files, f"{info.name}/METADATA", f"{info.name}/RECORD", "../../../bin/greet")
        (info / "RECORD").write_text("".join(f"{path},,\n" for path in listed))

    def install_editable(self, name: str, project: Path, version: str = "1.2") -> None:
        """As an installer does for the sources in `project/src`."""
        info = self._metadata(name, version, ())
        (self.folder / f"_{name}.pth").write_text(f"{project / 'src'}\n")
        origin = {"url": project.as_uri(), "dir_info": {"editable": True}}
        (info / "direct_url.json").write_text(json.dumps(origin))
        (info / "RECORD").write_text(f"_{name}.pth,,\n{info.name}/METADATA,,\n")
        self._monkeypatch.syspath_prepend(str(project / "src"))

    def _metadata(self, name: str, version: str, requires: Iterable[str]) -> Path:
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {one}" for one in requires)]
        (info / "METADATA").write_text("\n".join(("Metadata-Version: 2.1", *lines, "")))
        return info

    def load(self, module: str) -> ModuleType:
        """Import a module anew."""
        self.forget(module)
        invalidate_caches()
        return import_module(module)

    def forget(self, module: str) -> None:
        """Unload its top-level package."""
        top = module.partition(".")[0]
        for name in [one for one in sys.modules if one == top or one.startswith(f"{top}.")]:
            self._monkeypatch.delitem(sys.modules, name)


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files below a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
