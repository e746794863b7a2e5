"""Watches the code that templates have imported: after a change the next call imports it anew (inotify(7)).

Packages and single modules are watched as a whole; installed packages (site-packages) by their top folder,
where every installation leaves a trace. toolkeep's own code is not: the host itself runs the old one until it
restarts. The kernel queues an event before the write that causes it returns.
"""

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable, Iterator
from typing import Final

from toolkeep.sandbox.trusted_paths import OURS, is_site, is_within

_libc: Final = ctypes.CDLL(None, use_errno=True)
_EVENTS: Final = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
"""IN_MODIFY, ATTRIB, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE, DELETE_SELF, MOVE_SELF."""
_OVERFLOW: Final = 0x4000
_IGNORED: Final = 0x8000
_EVENT: Final = struct.Struct("=iIII")
_FOLDERS: Final = 4096
"""More folders of code than this are not watched: such a tool has no template."""
_READ_BYTES: Final = 1 << 16
"""Read at once: some thousand events, and more than any single one."""
_BYTECODE: Final = "__pycache__"


class TooMuchCode(OSError):
    """The code has more folders than can be watched."""


class CodeWatch:
    """Notices changes of some files and folders of code."""

    def __init__(self, code: Iterable[str]) -> None:
        """Raises OSError if they cannot be watched."""
        self._file = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._have_changed = False
        self._only: dict[int, set[str]] = {}
        """Names that count, of folders that hold single modules."""
        try:
            for folder, name in _watched(code):
                self._add(folder, name)
        except OSError:
            self.close()
            raise

    def _add(self, folder: str, name: str) -> None:
        watch = _libc.inotify_add_watch(self._file, os.fsencode(folder), _EVENTS)
        if watch < 0:
            raise OSError(ctypes.get_errno(), f"inotify_add_watch({folder})")
        if name:
            self._only.setdefault(watch, set()).add(name)
        else:
            self._only.pop(watch, None)

    def have_changed(self) -> bool:
        """Whether any of it changed since the start."""
        with contextlib.suppress(BlockingIOError):
            while not self._have_changed and (told := os.read(self._file, _READ_BYTES)):
                self._have_changed = any(map(self._counts, _events(told)))
        return self._have_changed

    def _counts(self, event: tuple[int, int, str]) -> bool:
        watch, kind, name = event
        if name == _BYTECODE or name.startswith(".") or kind & _IGNORED:
            return False
        only = self._only.get(watch)
        return bool(kind & _OVERFLOW) or only is None or name in only

    def close(self) -> None:
        """Close the descriptor. Closing twice is fine."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def _watched(code: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Folders to watch, with the name that counts in it if only one does."""
    count = 0
    for path in code:
        if is_within(path, OURS):
            continue
        if not os.path.isdir(path):
            yield os.path.dirname(path), os.path.basename(path)
            continue
        for folder, folders, _ in os.walk(path):
            folders[:] = (
                [] if is_site(path) else [name for name in folders if not name.startswith((".", _BYTECODE))]
            )
            count += 1
            if count > _FOLDERS:
                raise TooMuchCode(f"{path} has too many folders to be watched")
            yield folder, ""


def _events(told: bytes) -> Iterator[tuple[int, int, str]]:
    at = 0
    while at < len(told):
        watch, kind, _, length = _EVENT.unpack_from(told, at)
        at += _EVENT.size
        yield watch, kind, os.fsdecode(told[at : at + length].rstrip(b"\0"))
        at += length
