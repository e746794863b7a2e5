"""Reads regular files within a size limit; FIFOs, devices and oversized files are refused."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from toolkeep.errors import FileUnreadable


def read_ordinary(
    path: Path, limit: int, check: Callable[[os.stat_result], None] = lambda _: None
) -> bytes | None:
    """Read a regular file; None if it does not exist, `FileUnreadable` for anything else.

    `check` gets the status of the opened file (fstat, so no TOCTOU), and raises to reject it.
    """
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            # On the descriptor, not the path: the path could be swapped for a device between check and read.
            if not stat.S_ISREG(status.st_mode):
                raise FileUnreadable(str(path), "is not a regular file")
            check(status)
            # One byte more than allowed, not `st_size`: the file may grow while it is read.
            raw = file.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        if path.is_symlink():
            raise FileUnreadable(str(path), "is a dangling symlink") from error
        return None
    except OSError as error:
        raise FileUnreadable(str(path), error.strerror or "cannot be opened") from error
    if len(raw) > limit:
        raise FileUnreadable(str(path), f"is over {limit} bytes")
    return raw


def read_named(path: Path, limit: int) -> bytes:
    """`read_ordinary` for a file that must exist."""
    raw = read_ordinary(path, limit)
    if raw is None:
        raise FileUnreadable(str(path), "does not exist")
    return raw


def is_there(path: Path) -> bool:
    """Whether a path exists; raises `OSError` if that cannot be determined.

    From Python 3.14 on, `Path.exists` returns False for any error.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def check_inside(folder: Path, path: Path) -> None:
    """Raise `FileUnreadable` if a link leads out of a folder.

    A cloned repository or a tool may have placed it.
    """
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise FileUnreadable(str(path), f"is reached through a symlink out of {folder}; remove the symlink")


def _without_waiting(path: str, flags: int) -> int:
    """Opener with O_NONBLOCK: opening a FIFO would block until a writer comes."""
    return os.open(path, flags | os.O_NONBLOCK)
