"""Check before every call that the code of a project's tool is what a person accepted.

The check is a `stat` of each file, and of the folders around them, where a file could be put that is imported
first; files are hashed again only if one of those changed. What it does not cover: a worker imports after
this check, so a change in between, by a program that may write the project, is noticed by the next call only.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from toolkeep.config.project_code import hash_code, named_files
from toolkeep.errors import FileUnreadable

KINDS: Final = ("python", "command", "process", "wasm")
"""The forms of `run` that name code of this machine."""
_Stamp = tuple[int, ...]


class AcceptedCode:
    """The files of one tool, and the accepted hashes."""

    def __init__(self, run: Any, root: Path, accepted: Mapping[str, str], *, command: str = "") -> None:
        """`run` as in the file; `accepted` are the hashes of all files that it names.

        `command` accepts the current code for a running server; without one it must be restarted.
        """
        self.command = command
        self._run = run
        self.root = root
        """The project that the files are in."""
        self._accepted = accepted
        self._files: tuple[Path, ...] = ()
        self._seen: tuple[_Stamp, ...] = ()

    @property
    def is_untouched(self) -> bool:
        """Whether no file or folder was touched since `changed` last found none that differs."""
        return bool(self._seen) and self._stamps(self._files) == self._seen

    def changed(self) -> str:
        """The first file that differs from what was accepted, by its path in the project; empty if none
        does."""
        if self.is_untouched:
            return ""
        try:
            files = named_files(self._run, self.root)
            # before they are hashed: a change meanwhile is then seen the next time, not missed
            stamps = self._stamps(files)
            found = hash_code(files, self.root)
        except FileUnreadable as error:
            return str(error)
        # Other tools of the file are accepted with it: what this tool no longer names is no change of it.
        differing = [name for name, digest in found.items() if self._accepted.get(name) != digest]
        if differing:
            return differing[0]
        self._files, self._seen = files, stamps
        return ""

    def _stamps(self, files: tuple[Path, ...]) -> tuple[_Stamp, ...]:
        # Up to the root: a new `__init__.py` in a folder without one would run before the file below it.
        above = (folder for path in files for folder in path.parents if folder.is_relative_to(self.root))
        folders = dict.fromkeys((self.root, self.root / "src", *above))
        return tuple(map(stamp_of, (*files, *folders)))


def stamp_of(path: Path) -> _Stamp:
    """A value that changes when the file or folder does; empty if there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    # With ctime, because anybody can set mtime.
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def changed_files(accepted: Mapping[str, str], found: Mapping[str, str]) -> tuple[str, ...]:
    """The files that differ from what was accepted; if none, those that are missing."""
    changed = tuple(name for name, digest in found.items() if accepted.get(name) != digest)
    return changed or tuple(name for name in accepted if name not in found)
