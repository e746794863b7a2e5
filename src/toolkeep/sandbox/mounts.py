"""What is mounted where: changes in the folders that a zygote shows, and other names of one folder.

A zygote has copies of the mounts of its start: its workers would go on in the folder below a new mount, or on
a disk that was taken away. A folder that is mounted twice has two names, and paths that are compared as text
would protect only one of them.
"""

import os
import re
import select
from collections.abc import Sequence
from typing import Final, NamedTuple

from toolkeep.sandbox.trusted import is_within

_MOUNTS: Final = "/proc/self/mountinfo"
_WHICH: Final = slice(2, 5)
"""Of a line: the device, what of it is mounted, and where."""

_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


class MountsInside:
    """The mounts at and below some folders."""

    def __init__(self, folders: Sequence[str]) -> None:
        """Raises OSError where there is no descriptor left."""
        self._folders = folders
        self._file = os.open(_MOUNTS, os.O_RDONLY | os.O_CLOEXEC)
        self._changes = select.poll()
        self._changes.register(self._file, select.POLLPRI)
        self._seen = self._read()  # after it was opened: the kernel tells of what comes from there on
        self._have_changed = False

    def have_changed(self) -> bool:
        """Whether they are others by now; the kernel says when it is worth a look."""
        if not self._have_changed and self._changes.poll(0):
            self._have_changed = self._read() != self._seen
        return self._have_changed

    def close(self) -> None:
        """Ask no more. Closing twice is fine."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _read(self) -> list[list[bytes]]:
        os.lseek(self._file, 0, os.SEEK_SET)
        with open(self._file, "rb", closefd=False) as file:
            found = [line.split()[_WHICH] for line in file]
        return sorted(mount for mount in found if self._is_inside(_path(mount[-1])))

    def _is_inside(self, path: str) -> bool:
        return any(path == folder or path.startswith(f"{folder}/") for folder in self._folders)


class _Mount(NamedTuple):
    device: str
    root: str
    """The folder of the file system that is mounted."""
    place: str
    """The folder where it is seen."""


def other_names(folder: str) -> list[str]:
    """The paths outside a folder by which a mount shows it, or a part of it, a second time."""
    mounts = _mounts()
    above = [one for one in mounts if is_within(folder, one.place)]
    if not above:
        return []
    holding = max(above, key=lambda one: len(one.place))  # of mounts in one place, which hide each other, any
    shown = [holding._replace(root=_joined(holding.root, folder, holding.place), place=folder)]
    shown += (one for one in mounts if is_within(one.place, folder))
    found = []
    for ours in shown:
        for other in mounts:
            if other.device != ours.device:
                continue
            if is_within(ours.root, other.root):
                seen, real = _joined(other.place, ours.root, other.root), ours.place
            elif is_within(other.root, ours.root):
                seen, real = other.place, _joined(ours.place, other.root, ours.root)
            else:
                continue
            if not is_within(seen, folder) and _is_same(seen, real):
                found.append(seen)
    return list(dict.fromkeys(found))


def _mounts() -> list[_Mount]:
    try:
        with open(_MOUNTS, "rb") as file:
            return [_Mount(*map(_path, line.split()[_WHICH])) for line in file]
    except FileNotFoundError:  # another system than Linux
        return []


def _joined(base: str, path: str, above: str) -> str:
    """A path below one folder, as the path below another."""
    rest = path[len(above.rstrip("/")) :]
    return f"{base.rstrip('/')}{rest}" or "/"


def _is_same(path: str, other: str) -> bool:
    """Whether two paths lead to the same folder; not where a further mount hides it."""
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def _path(written: bytes) -> str:
    """A path as it is: a space and the like are written as three digits."""
    return os.fsdecode(_ESCAPED.sub(lambda digits: bytes([int(digits[1], 8)]), written))
