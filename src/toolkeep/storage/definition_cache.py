"""Definitions of Python files of tools, as a confined worker read them, in the state folder.

Found by the hash of the code and of what else they depend on: interpreter, toolkeep, installed packages and
data files of the project's packages. No tool sees the folder, so none can plant a definition. What is found
is as untrusted as what a worker says: the caller checks it in the same way.
"""

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from toolkeep import __version__
from toolkeep.config.tools_file import ToolsFile
from toolkeep.definitions.found_tool import FoundTool
from toolkeep.execution.tool_code import find_code
from toolkeep.limits import CODE_FILES
from toolkeep.sandbox.trusted_paths import OURS
from toolkeep.storage.cache_folder import CacheFolder

_FORMAT: Final = 1
_KEPT: Final = 64
"""Files of definitions: a project has a few, and each edit adds one."""


class DefinitionCache:
    """The definitions that were read for one project."""

    def __init__(self, state_folder: Path) -> None:
        self._cache = CacheFolder(state_folder / "definitions", kept=_KEPT)

    def read(self, file: ToolsFile, read: Callable[[], Sequence[FoundTool]]) -> Sequence[FoundTool]:
        """What was read before for the same code, or what `read` gives; problems are not remembered."""
        facts = _facts(file)
        if facts is None:
            return read()
        known = self._known(facts)
        if known is not None:
            return known
        found = read()
        # Packages that were installed or removed meanwhile: nobody knows which the worker saw.
        if all(one.definition is not None for one in found) and _facts(file) == facts:
            said = [[one.reference, one.definition] for one in found]
            self._cache.write(facts, json.dumps(said).encode())
        return found

    def _known(self, facts: list[Any]) -> list[FoundTool] | None:
        try:
            said = json.loads(self._cache.read(facts) or b"")
            return [FoundTool(reference=name, definition=definition) for name, definition in said]
        except (ValueError, TypeError):
            return None


def _facts(file: ToolsFile) -> list[Any] | None:
    """Everything that the definitions depend on; None where that cannot be known.

    Packages of editable installs change without a trace in the folder of installed ones.
    """
    try:
        code = find_code(f"{file.place}:", sys.path, file.places)
        elsewhere = set(code.packages) - {OURS, *file.places, *map(os.path.realpath, file.places)}
        data = list(_data(file))
        if elsewhere or len(data) > CODE_FILES:
            return None
        installed = [[folder, Path(folder).stat().st_mtime_ns] for folder in code.site]
    except (OSError, ValueError):
        return None
    program = [__version__, sys.version, sys.prefix, os.path.realpath(sys.executable)]
    return [_FORMAT, *program, file.seal, file.place, file.places, installed, data]


def _data(file: ToolsFile) -> Iterator[list[Any]]:
    """The files of the project's packages: a module may read one while it is imported."""
    for place in filter(os.path.isdir, file.places):
        for folder, folders, names in os.walk(place):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(names):
                status = (Path(folder) / name).lstat()
                yield [folder, name, stat.S_IFMT(status.st_mode), status.st_size, status.st_mtime_ns]
