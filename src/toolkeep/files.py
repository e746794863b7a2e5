"""Ordinary files, read whole and within a limit; a pipe, a device or a giant in their place is refused."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from toolkeep.errors import FileUnreadable


def read_ordinary(
    path: Path, limit: int, check: Callable[[os.stat_result], None] = lambda _: None
) -> bytes | None:
    """What an ordinary file holds; None where there is none, `FileUnreadable` for anything else.

    `check` looks at the very file that is read, and raises where it may not count.
    """
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise FileUnreadable(str(path), "is no ordinary file")
            check(status)
            raw = file.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        if path.is_symlink():
            raise FileUnreadable(str(path), "is a link that leads nowhere") from error
        return None
    except OSError as error:
        raise FileUnreadable(str(path), error.strerror or "cannot be opened") from error
    if len(raw) > limit:
        raise FileUnreadable(str(path), f"is over {limit} bytes")
    return raw


def read_named(path: Path, limit: int) -> bytes:
    """As `read_ordinary`, for a file that must be there."""
    raw = read_ordinary(path, limit)
    if raw is None:
        raise FileUnreadable(str(path), "does not exist")
    return raw


def is_there(path: Path) -> bool:
    """Whether a path leads to something; raises `OSError` where that cannot be told.

    `Path.exists` takes for absent what it cannot look at, whatever the reason, from Python 3.14 on.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def check_inside(folder: Path, path: Path) -> None:
    """Raise `FileUnreadable` where a link leads out of a folder: a clone may hold one, a tool leave one."""
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise FileUnreadable(str(path), f"is reached by a link that leads out of {folder}; take it away")


def _without_waiting(path: str, flags: int) -> int:
    """A pipe would keep whoever opens it waiting for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)
