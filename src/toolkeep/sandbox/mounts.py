"""Notices when something is mounted in folders that a zygote shows, or unmounted there.

A zygote has copies of the mounts of its start: its workers would go on in the folder below a new mount, or on
a disk that was taken away.
"""

import os
import re
import select
from collections.abc import Sequence
from typing import Final

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


def _path(written: bytes) -> str:
    """A path as it is: a space and the like are written as three digits."""
    return os.fsdecode(_ESCAPED.sub(lambda digits: bytes([int(digits[1], 8)]), written))
