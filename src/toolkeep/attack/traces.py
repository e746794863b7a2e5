"""What can be seen of an attempt afterwards: in files, and among processes."""

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def below(top: Path) -> Iterator[Path]:
    """A path, and everything in it."""
    yield top
    if top.is_dir() and not top.is_symlink():
        yield from sorted(top.rglob("*"))


def look(path: Path) -> Any:
    """Everything about a file but when it was read; the number of the error where it cannot be seen."""
    try:
        status = path.lstat()
    except OSError as error:
        return error.errno
    content = ""
    if stat.S_ISREG(status.st_mode):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    attributes = os.listxattr(path, follow_symlinks=False)
    return status.st_mode, status.st_uid, status.st_nlink, status.st_mtime_ns, content, attributes


def odd_files(top: Path) -> Iterator[Path]:
    """What is neither a file, a folder nor a link, and what runs as somebody else."""
    for path in below(top):
        mode = path.lstat().st_mode if os.path.lexists(path) else 0
        is_plain = stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode) or not mode
        if mode & 0o6000 or not is_plain:
            yield path


def processes_named(name: str) -> list[int]:
    """Living processes by the name that they took."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                is_named = (entry / "comm").read_text().strip() == name
                is_zombie = "\nState:\tZ" in (entry / "status").read_text()
                if is_named and not is_zombie:
                    found.append(int(entry.name))
    return found
