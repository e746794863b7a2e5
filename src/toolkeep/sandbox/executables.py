"""Files that need the execute right to start a program: the program, its loader, its interpreter.

A script names an interpreter in its shebang line, an ELF binary its dynamic loader. `env` in a shebang finds
a program by name, which is needed too. Whoever may write a script chooses what it names, and that path is
shown to workers. So only regular executable files count: a shebang like `#!/home/user/.ssh/id_rsa` must not
grant a secret, nor one that names a folder a whole tree.

A compiler driver and git are of no use without the programs of the system that they start, so those come with
them.
"""

import functools
import os
import re
import shutil
import stat
import struct
from collections.abc import Iterator
from typing import Final

_SEARCH: Final = "/usr/bin:/bin"
_DEPTH: Final = 4
"""A script's interpreter may be a script; the kernel follows this many."""

_LINE_BYTES: Final = 256
"""Bytes of a file that the kernel reads to find its `#!` line (BINPRM_BUF_SIZE, since Linux 5.1)."""
_INTERPRETER: Final = 3
_HEADERS: Final = 64
_ANY_EXECUTE: Final = 0o111
_ELF_64: Final = b"\x7fELF\x02\x01"

_SYSTEM: Final = "/usr/"
_STARTED_BY: Final = (
    (
        re.compile(r"(.+-)?(gcc|g\+\+|c\+\+|cpp|gfortran)(-[\d.]+)?"),
        ("/usr/lib/gcc", "/usr/libexec/gcc"),
        ("as", "ld"),
    ),
    (re.compile(r"clang(\+\+|-cpp)?(-[\d.]+)?"), (), ("ld",)),
    (re.compile(r"git"), ("/usr/lib/git-core", "/usr/libexec/git-core"), ()),
)
"""Programs by name, with the folders and the other programs of what they start, such as cc1 and collect2. A
table, because a program cannot be asked without running it."""


def executables(program: str, depth: int = 0) -> Iterator[str]:
    """Real paths of a program and of everything that the kernel loads to start it."""
    path = os.path.realpath(program)
    yield path
    try:
        status = os.stat(path)
        # The cache key changes with the file, so a replaced program is read again.
        which = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        loaded_by = _loaded_by(path, which)
    except OSError:  # Executable but not readable: its loader is unknown.
        return
    for loader in loaded_by:
        if depth < _DEPTH and _is_executable(loader):
            yield from executables(loader, depth + 1)
    yield from _started_by(path, depth)


def _started_by(path: str, depth: int) -> Iterator[str]:
    """What a program of the system starts; one by that name elsewhere may be anybody's work."""
    if not path.startswith(_SYSTEM) or depth >= _DEPTH:
        return
    for named, folders, programs in _STARTED_BY:
        if named.fullmatch(os.path.basename(path)):
            yield from (os.path.realpath(folder) for folder in folders if os.path.isdir(folder))
            for name in programs:
                if found := shutil.which(name, path=_SEARCH):
                    yield from executables(found, depth + 1)


def _is_executable(path: str) -> bool:
    """Whether a path is a regular file with an execute bit."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # Missing, or not a valid path.
        return False
    return stat.S_ISREG(mode) and bool(mode & _ANY_EXECUTE)


def _loaded_by(path: str, which: tuple[int, ...]) -> list[str]:
    """What a file names as its loader; `env` is resolved each time, because PATH contents change."""
    beginning, loader = _read(path, which)
    return [loader] if beginning.startswith(_ELF_64) else _interpreters(beginning)


@functools.lru_cache(256)
def _read(path: str, which: tuple[int, ...]) -> tuple[bytes, str]:  # noqa: ARG001 -- another file is read anew
    """First bytes of a file and its loader; cached until the file changes, because each call asks."""
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
    """The dynamic loader that a 64-bit ELF binary names (PT_INTERP); empty if static."""
    try:
        start, size, count = struct.unpack("<Q14xHH", os.pread(descriptor, 26, 32))
        # Bounded: the file is untrusted, and may claim 65,535 program headers of 4 KiB.
        for number in range(min(count, _HEADERS)):
            header = os.pread(descriptor, 56, start + number * size)
            kind, offset, length = struct.unpack("<I4xQ16xQ", header[:40])
            if kind == _INTERPRETER:
                name = os.pread(descriptor, min(length, 4096), offset)
                return name.rstrip(b"\0").decode("utf-8", "replace")
    except (struct.error, OverflowError):  # Truncated or malformed.
        pass
    return ""
