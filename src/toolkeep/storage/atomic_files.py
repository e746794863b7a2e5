"""Atomic file writes: a temporary file beside the target, fsync, then rename or link into place.

Without the fsync before the rename, a crash may leave the new name with an empty file. Without the fsync of
the folder after it, the name itself may be lost.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


def write_whole(path: Path, data: bytes, *, mode: int = 0o600, is_soon_replaced: bool = False) -> None:
    """Replace the file at the path; durable when this returns.

    Where it is soon replaced anyway, the rename is not synced: a crash may bring back the older version.
    """
    with _beside(path, data, mode) as written:
        written.rename(path)
    if not is_soon_replaced:
        sync_folder(path.parent)


def write_once(path: Path, data: bytes) -> bool:
    """Create the file unless it exists; whether this call created it.

    A hard link fails where the name exists, in one step: of two processes that make a key, one wins.
    """
    with _beside(path, data) as written:
        try:
            path.hardlink_to(written)
        except FileExistsError:
            return False
    sync_folder(path.parent)
    return True


def sync_folder(folder: Path) -> None:
    """fsync a folder: make the names in it durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_data(descriptor: int) -> None:
    """fsync a file without what its data does not need, where the system has that; macOS has not."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, after short writes, too."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_all_at(descriptor: int, data: bytes, offset: int) -> None:
    """Write everything at an offset of the file."""
    written = os.pwrite(descriptor, data, offset)
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], offset + written)


@contextlib.contextmanager
def _beside(path: Path, data: bytes, mode: int = 0o600) -> Iterator[Path]:
    written = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            write_all(descriptor, data)
            os.fchmod(descriptor, mode)  # by descriptor: the name may be a link to another file by then
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        yield written
    finally:
        written.unlink(missing_ok=True)
