"""Reads and writes `toolkeep.lock` in the folder of a project."""

from pathlib import Path

from toolkeep.errors import FileUnreadable
from toolkeep.host.files import read_ordinary
from toolkeep.limits import DEFINITION_FILE_BYTES
from toolkeep.registry.lockfile import LOCK_FILE, Lock, read_lock, write_lock
from toolkeep.storage.atomic_files import write_whole


def read_lock_file(project: Path) -> Lock | None:
    """The lock file of a project, parsed; None where it has none."""
    raw = lock_bytes(project)
    return None if raw is None else read_lock(raw, str(project / LOCK_FILE))


def lock_bytes(project: Path) -> bytes | None:
    """The bytes of the file; None where there is none."""
    return read_ordinary(project / LOCK_FILE, DEFINITION_FILE_BYTES)


def write_lock_file(project: Path, lock: Lock) -> Path:
    """Write the lock file atomically."""
    path = project / LOCK_FILE
    try:
        write_whole(path, write_lock(lock), mode=0o644)
    except OSError as error:
        raise FileUnreadable(str(path), error.strerror or "cannot be written") from error
    return path
