"""Reads and writes `toolkeep.lock` in the folder of a project."""

import os
import stat
from pathlib import Path

from toolkeep.errors import FileUnreadable
from toolkeep.limits import DEFINITION_FILE_BYTES
from toolkeep.registry.locking import LOCK_FILE, Lock, read_lock, write_lock
from toolkeep.storage.atomic import write_whole


def read_lock_file(project: Path) -> Lock | None:
    """The lock of a project; None where it has none."""
    raw = lock_bytes(project)
    return None if raw is None else read_lock(raw, str(project / LOCK_FILE))


def lock_bytes(project: Path) -> bytes | None:
    """The bytes of the file, read without waiting for a pipe in its place."""
    path = project / LOCK_FILE
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileUnreadable(str(path), "is no ordinary file")
            raw = file.read(DEFINITION_FILE_BYTES + 1)
    except FileNotFoundError as error:
        if path.is_symlink():
            raise FileUnreadable(str(path), "is a link that leads nowhere") from error
        return None
    except OSError as error:
        raise FileUnreadable(str(path), error.strerror or "cannot be read") from error
    if len(raw) > DEFINITION_FILE_BYTES:
        raise FileUnreadable(str(path), f"is over {DEFINITION_FILE_BYTES} bytes")
    return raw


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def write_lock_file(project: Path, lock: Lock) -> Path:
    """Write the lock, as a whole or not at all."""
    path = project / LOCK_FILE
    try:
        write_whole(path, write_lock(lock), mode=0o644)
    except OSError as error:
        raise FileUnreadable(str(path), error.strerror or "cannot be written") from error
    return path
