"""Landlock ruleset of a worker: handle every access right, then allow only the grant.

Not covered by Landlock: names and metadata (stat, chmod, utime), pathname unix sockets, UDP. The mount
namespace, the network namespace and the seccomp filter cover those.
"""

import os
import stat
import struct
from typing import Final

from . import linux

LOWEST_VERSION: Final = 3
"""Before ABI 3, Landlock does not control truncate(2): a read-only file could be emptied."""

_EXECUTE: Final = 1 << 0
_WRITE_FILE: Final = 1 << 1
_READ_FILE: Final = 1 << 2
_READ_DIR: Final = 1 << 3
_REMOVE_DIR: Final = 1 << 4
_REMOVE_FILE: Final = 1 << 5
_MAKE_DIR: Final = 1 << 7
_MAKE_REG: Final = 1 << 8
MAKE_SOCKET: Final = 1 << 9
_MAKE_SYM: Final = 1 << 12
_REFER: Final = 1 << 13
_TRUNCATE: Final = 1 << 14
_IOCTL_DEV: Final = 1 << 15

_CONNECT_TCP: Final = 1 << 1
_ANY_TCP: Final = 0b11
_ANY_SCOPE: Final = 0b11
_VERSION_WITH_TCP: Final = 4
_VERSION_WITH_IOCTL: Final = 5
_VERSION_WITH_SCOPE: Final = 6

READ: Final = _READ_FILE | _READ_DIR
RUN: Final = READ | _EXECUTE
WRITE: Final = (
    READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SYM | _REFER | _TRUNCATE
)
"""No right to create devices, FIFOs or sockets: left in a granted folder, they would be opened by programs
outside the sandbox."""
USE_DEVICE: Final = _READ_FILE | _WRITE_FILE
_ON_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
"""Rights that may stand in a rule on a file; the kernel rejects directory rights there with EINVAL."""


def make_ruleset() -> int:
    """Descriptor of a new ruleset that denies everything it handles."""
    version = linux.landlock_version()
    if version < LOWEST_VERSION:
        raise OSError(f"Landlock {LOWEST_VERSION} is needed, this kernel has {version or 'none'}")
    return linux.landlock_create(_handled(version))


def allow(ruleset: int, path: str, access: int) -> None:
    """Allow these accesses at and below a path, opened without following symlinks."""
    opened = linux.open_without_symlinks(path)
    try:
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            access &= _ON_FILES
        linux.landlock_allow_path(ruleset, access, opened, path)
    finally:
        os.close(opened)


def allow_port(ruleset: int, port: int) -> None:
    """Allow TCP connect(2) to one port: the egress proxy's. Landlock below ABI 4 has no rule for ports."""
    version = linux.landlock_version()
    if version < _VERSION_WITH_TCP:
        raise OSError(
            f"Landlock {_VERSION_WITH_TCP} is needed to allow single ports, this kernel has {version}"
        )
    linux.landlock_allow_port(ruleset, _CONNECT_TCP, port)


def _handled(version: int) -> bytes:
    """The attribute struct: every access that this ABI version can deny; what is not handled is allowed."""
    # All file system rights of ABI 3, those included that are never allowed.
    files = (1 << 15) - 1
    if version >= _VERSION_WITH_IOCTL:
        files |= _IOCTL_DEV
    if version < _VERSION_WITH_TCP:
        return struct.pack("=Q", files)
    if version < _VERSION_WITH_SCOPE:
        return struct.pack("=QQ", files, _ANY_TCP)
    # Scopes (ABI 6): no abstract unix socket and no signal to a process outside this domain.
    return struct.pack("=QQQ", files, _ANY_TCP, _ANY_SCOPE)
