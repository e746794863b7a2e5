"""Mount table (/proc/self/mountinfo): changes below a zygote's folders, and second paths of a folder.

A zygote holds copies of the mounts at its start. After a later mount or unmount its workers would still use
the covered folder or the removed disk. And a folder that is bind-mounted twice has two paths: protecting one
by comparing text would leave it writable through the other.
"""

import os
import re
import select
from collections.abc import Sequence
from typing import Final, NamedTuple

from toolkeep.sandbox.trusted_paths import is_within

_MOUNTS: Final = "/proc/self/mountinfo"
_WHICH: Final = slice(2, 5)
"""Fields of a line: device, root within the file system, mount point."""

_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


class MountWatch:
    """Watches the mounts at and below some folders."""

    def __init__(self, folders: Sequence[str]) -> None:
        """Raises OSError if no descriptor is left."""
        self._folders = folders
        self._file = os.open(_MOUNTS, os.O_RDONLY | os.O_CLOEXEC)
        self._changes = select.poll()
        self._changes.register(self._file, select.POLLPRI)
        # Read after the file was opened and registered: POLLPRI reports changes from then on.
        self._seen = self._read()
        self._have_changed = False

    def have_changed(self) -> bool:
        """Whether the mounts differ from those at the start; re-read only if the kernel signals a change."""
        if not self._have_changed and self._changes.poll(0):
            self._have_changed = self._read() != self._seen
        return self._have_changed

    def close(self) -> None:
        """Close the descriptor. Closing twice is fine."""
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
    """Folder within the file system that is mounted."""
    place: str
    """Mount point."""


def bind_mount_aliases(folder: str) -> list[str]:
    """Paths outside a folder by which a second mount shows the folder or a part of it."""
    mounts = _mounts()
    above = [one for one in mounts if is_within(folder, one.place)]
    if not above:
        return []
    holding = max(above, key=lambda one: len(one.place))  # Of mounts stacked on one mount point, any.
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
    except FileNotFoundError:  # Not Linux.
        return []


def _joined(base: str, path: str, above: str) -> str:
    """Translate a path below one folder into the path below another."""
    rest = path[len(above.rstrip("/")) :]
    return f"{base.rstrip('/')}{rest}" or "/"


def _is_same(path: str, other: str) -> bool:
    """Whether two paths reach the same folder; not if a further mount hides it."""
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def _path(written: bytes) -> str:
    """Unescape a path: mountinfo writes spaces and the like as three octal digits."""
    return os.fsdecode(_ESCAPED.sub(lambda digits: bytes([int(digits[1], 8)]), written))
