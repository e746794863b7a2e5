"""What must be executable so that a program can be started: itself, and what the kernel loads it by.

A script names an interpreter in its first line, a binary its loader. `env` in a first line finds a program by
its name, so that this one is needed too. Whoever may write a script chooses what it names: that is shown to
workers, so that nothing counts which the kernel would not load, a secret or a folder least of all.
"""

import functools
import os
import shutil
import stat
import struct
from collections.abc import Iterator
from typing import Final

_SEARCH: Final = "/usr/bin:/bin"
_DEPTH: Final = 4
"""A script may name a script; the kernel follows as many."""

_LINE_BYTES: Final = 256
_INTERPRETER: Final = 3
_HEADERS: Final = 64
_ANY_EXECUTE: Final = 0o111
_ELF_64: Final = b"\x7fELF\x02\x01"


def executables(program: str, depth: int = 0) -> Iterator[str]:
    """The real paths of a program and of what it is loaded by."""
    path = os.path.realpath(program)
    yield path
    try:
        status = os.stat(path)
        which = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        loaded_by = _loaded_by(path, which)
    except OSError:  # it can be executed and not read: whatever loads it, it is not known
        return
    for loader in loaded_by:
        if depth < _DEPTH and _is_executable(loader):
            yield from executables(loader, depth + 1)


def _is_executable(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # it is not there, or no path
        return False
    return stat.S_ISREG(mode) and bool(mode & _ANY_EXECUTE)


def _loaded_by(path: str, which: tuple[int, ...]) -> list[str]:
    """What a file names; which program `env` finds is looked for each time."""
    beginning, loader = _read(path, which)
    return [loader] if beginning.startswith(_ELF_64) else _interpreters(beginning)


@functools.lru_cache(256)
def _read(path: str, which: tuple[int, ...]) -> tuple[bytes, str]:  # noqa: ARG001 -- another file is read anew
    """How a file begins, and its loader: remembered until it changes, because each call of a program asks."""
    with open(path, "rb") as file:
        beginning = file.read(_LINE_BYTES)
        return beginning, _loader(file.fileno()) if beginning.startswith(_ELF_64) else ""


def _interpreters(beginning: bytes) -> list[str]:
    line, _, _ = beginning.partition(b"\n")
    if not line.startswith(b"#!"):
        return []
    words = [word.decode("utf-8", "replace") for word in line[2:].split()]
    if not words or not words[0].startswith("/"):
        return []
    if os.path.basename(words[0]) != "env":
        return words[:1]
    named = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    found = shutil.which(named[0], path=_SEARCH) if named else None
    return [words[0], *([found] if found else [])]


def _loader(descriptor: int) -> str:
    """The loader that a 64-bit binary names; empty for one that needs none."""
    try:
        start, size, count = struct.unpack("<Q14xHH", os.pread(descriptor, 26, 32))
        for number in range(min(count, _HEADERS)):
            header = os.pread(descriptor, 56, start + number * size)
            kind, offset, length = struct.unpack("<I4xQ16xQ", header[:40])
            if kind == _INTERPRETER:
                name = os.pread(descriptor, min(length, 4096), offset)
                return name.rstrip(b"\0").decode("utf-8", "replace")
    except (struct.error, OverflowError):  # it is cut short, or makes no sense
        pass
    return ""
