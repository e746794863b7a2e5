"""Whether the code of a project's tool is still what a person accepted; looked at before every call.

A look is a `stat` of each file, and of the folders around them, in which a file could be put before another;
they are read again only where one of those changed. A worker reads what it imports after this look: whoever
changes a file in between, which takes a program that may write the project, is noticed by the next call only.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from toolkeep.config.project_code import hash_code, named_files
from toolkeep.errors import FileUnreadable

KINDS: Final = ("python", "command", "process", "wasm")
"""What of `run` names code of this machine."""
_Stamp = tuple[int, ...]


class AcceptedCode:
    """The files of one tool, and the hashes that were accepted."""

    def __init__(self, run: Any, root: Path, accepted: Mapping[str, str]) -> None:
        """`run` as the file has it; `accepted` are the hashes of all that the file names."""
        self._run = run
        self._root = root
        self._accepted = accepted
        self._files: tuple[Path, ...] = ()
        self._seen: tuple[_Stamp, ...] = ()

    def changed(self) -> str:
        """The first file that is not what was accepted, by its path in the project; empty where none is."""
        if self._seen and self._stamps(self._files) == self._seen:
            return ""
        try:
            files = named_files(self._run, self._root)
            stamps = self._stamps(files)  # before they are read: what changes meanwhile is seen the next time
            found = hash_code(files, self._root)
        except FileUnreadable as error:
            return str(error)
        # Others of the same file are accepted with it: what this tool no longer names is no change of it.
        differing = [name for name, digest in found.items() if self._accepted.get(name) != digest]
        if differing:
            return differing[0]
        self._files, self._seen = files, stamps
        return ""

    def _stamps(self, files: tuple[Path, ...]) -> tuple[_Stamp, ...]:
        # All up to the root: an `__init__.py` in a folder without one would be run before the file below it.
        above = (folder for path in files for folder in path.parents if folder.is_relative_to(self._root))
        folders = dict.fromkeys((self._root, self._root / "src", *above))
        return tuple(map(_stamp, (*files, *folders)))


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return ()
    # The time of change too, because anybody can set the time of modification.
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def changed_files(accepted: Mapping[str, str], found: Mapping[str, str]) -> tuple[str, ...]:
    """The files that are not what was accepted; where there are none, those that are no longer there."""
    changed = tuple(name for name, digest in found.items() if accepted.get(name) != digest)
    return changed or tuple(name for name in accepted if name not in found)
