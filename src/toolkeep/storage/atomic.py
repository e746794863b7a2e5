"""Files that are there whole or not at all: written beside their place, made durable, then moved there."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


def write_whole(path: Path, data: bytes, *, mode: int = 0o600, is_soon_replaced: bool = False) -> None:
    """Put the data at the path, instead of what was there; durable when this returns.

    What is soon replaced anyway may be found in its older form after a crash of the machine, but whole.
    """
    with _beside(path, data, mode) as written:
        written.rename(path)
    if not is_soon_replaced:
        sync_folder(path.parent)


def write_once(path: Path, data: bytes) -> bool:
    """Put the data at the path unless something is there already; says whether it is ours that is there."""
    with _beside(path, data) as written:
        try:
            path.hardlink_to(written)
        except FileExistsError:
            return False
    sync_folder(path.parent)
    return True


def sync_folder(folder: Path) -> None:
    """Make the names in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything; a file system may take less than it was given."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_all_at(descriptor: int, data: bytes, offset: int) -> None:
    """Write everything to a place in the file."""
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
            os.fchmod(descriptor, mode)  # of this very file: its name may be a link to another by then
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        yield written
    finally:
        written.unlink(missing_ok=True)
