"""System calls that Python has no function for. Each raises OSError that says which call failed, on what.

Trusts its callers: nothing here decides anything.
"""

import ctypes
import fcntl
import functools
import itertools
import os
import socket
import struct
from typing import Any, Final

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
for _name in ("capset", "mount", "prctl", "setns", "umount2", "unshare"):
    getattr(_libc, _name)  # looked up once here, not in every worker

CLONE_NEWNS: Final = 0x0002_0000
CLONE_NEWCGROUP: Final = 0x0200_0000
CLONE_NEWUTS: Final = 0x0400_0000
CLONE_NEWIPC: Final = 0x0800_0000
CLONE_NEWUSER: Final = 0x1000_0000
CLONE_NEWPID: Final = 0x2000_0000
CLONE_NEWNET: Final = 0x4000_0000

MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_PRIVATE: Final = 1 << 18
MNT_DETACH: Final = 2

ATTR_RDONLY: Final = 0x1
ATTR_NOSUID: Final = 0x2
ATTR_NODEV: Final = 0x4
ATTR_NOEXEC: Final = 0x8
ATTR_IDMAP: Final = 0x0010_0000

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_SECCOMP: Final = 22
_PR_CAPBSET_READ: Final = 23
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP_MODE_FILTER: Final = 2

_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 1

_AT_FDCWD: Final = -100
_AT_EMPTY_PATH: Final = 0x1000
_AT_RECURSIVE: Final = 0x8000
_OPEN_TREE_CLONE: Final = 1
_OPEN_TREE_CLOEXEC: Final = os.O_CLOEXEC
_MOVE_MOUNT_F_EMPTY_PATH: Final = 4
_RESOLVE_NO_SYMLINKS: Final = 4

# From 424 on every architecture uses the same numbers; pivot_root is older.
_SYS_OPEN_TREE: Final = 428
_SYS_MOVE_MOUNT: Final = 429
_SYS_CLOSE_RANGE: Final = 436
_SYS_OPENAT2: Final = 437
_SYS_MOUNT_SETATTR: Final = 442
_SYS_LANDLOCK_CREATE_RULESET: Final = 444
_SYS_LANDLOCK_ADD_RULE: Final = 445
_SYS_LANDLOCK_RESTRICT_SELF: Final = 446
_SYS_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}

_CAPABILITY_HEADER: Final = struct.pack("=Ii", 0x2008_0522, 0)
_NO_CAPABILITIES: Final = bytes(24)
_LANDLOCK_RULE_PATH: Final = 1
_LANDLOCK_RULE_PORT: Final = 2
_LANDLOCK_VERSION: Final = 1


class _SocketFilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _call(number: int, what: str, *arguments: Any) -> int:
    return _checked(int(_libc.syscall(ctypes.c_long(number), *arguments)), what)


def _prctl(option: int, what: str, first: Any = 0, second: Any = 0) -> int:
    first = ctypes.c_ulong(first) if isinstance(first, int) else first
    second = ctypes.c_ulong(second) if isinstance(second, int) else second
    return _checked(_libc.prctl(option, first, second, ctypes.c_ulong(0), ctypes.c_ulong(0)), what)


# --- processes ---------------------------------------------------------------------------------


def unshare(flags: int) -> None:
    """Leave the namespaces that the flags name for new ones."""
    _checked(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(descriptor: int, kind: int) -> None:
    """Enter a namespace."""
    _checked(_libc.setns(descriptor, kind), f"setns({kind:#x})")


def close_from(lowest: int) -> None:
    """Close this descriptor and every higher one."""
    _call(
        _SYS_CLOSE_RANGE, "close_range", ctypes.c_uint(lowest), ctypes.c_uint(0xFFFF_FFFF), ctypes.c_uint(0)
    )


def die_with_parent(signal_number: int) -> None:
    """Get this signal when the parent ends; forgotten by the kernel when credentials change."""
    _prctl(_PR_SET_PDEATHSIG, "prctl(PR_SET_PDEATHSIG)", signal_number)


def set_dumpable(*, is_dumpable: bool) -> None:
    """Whether others of the same user may look into this process."""
    _prctl(_PR_SET_DUMPABLE, "prctl(PR_SET_DUMPABLE)", int(is_dumpable))


def forbid_new_privileges() -> None:
    """No program that is run from here on gains anything; inherited, and cannot be undone."""
    _prctl(_PR_SET_NO_NEW_PRIVS, "prctl(PR_SET_NO_NEW_PRIVS)", 1)


def raise_loopback() -> None:
    """Let this network namespace talk to itself; a new one has its loopback down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", _IFF_UP)
        fcntl.ioctl(control, _SIOCSIFFLAGS, request)


def drop_bounding_set() -> None:
    """Take every capability out of the bounding set of this user namespace."""
    for capability in range(_capabilities()):
        _prctl(_PR_CAPBSET_DROP, "prctl(PR_CAPBSET_DROP)", capability)


@functools.cache
def _capabilities() -> int:
    """How many capabilities the running kernel knows."""
    return next(number for number in itertools.count() if _libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) < 0)


def drop_capabilities() -> None:
    """Hold no capability any more."""
    _checked(_libc.capset(_CAPABILITY_HEADER, _NO_CAPABILITIES), "capset")


# --- paths ---------------------------------------------------------------------------------------


def open_place(path: str) -> int:
    """A descriptor of a path without links: one could have been put there after the path was checked."""
    how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS)
    size = ctypes.c_size_t(len(how))
    return _call(_SYS_OPENAT2, f"openat2({path})", _AT_FDCWD, os.fsencode(path), how, size)


# --- mounts ------------------------------------------------------------------------------------


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2)."""
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    result = _libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])
    _checked(result, f"mount({kind or 'bind'} on {target})")


def clone_tree(path: str) -> int:
    """A descriptor of a copy of the mounts at and below a path, attached nowhere."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE
    return _call(_SYS_OPEN_TREE, f"open_tree({path})", _AT_FDCWD, os.fsencode(path), ctypes.c_uint(flags))


def clone_granted_tree(path: str) -> int:
    """The same, of a path without links."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE | _AT_EMPTY_PATH
    place = open_place(path)
    try:
        return _call(_SYS_OPEN_TREE, f"open_tree({path})", place, b"", ctypes.c_uint(flags))
    finally:
        os.close(place)


def set_tree_attributes(tree: int, attributes: int, *, mapped_by: int = -1) -> None:
    """Add attributes to all mounts of a tree; with ATTR_IDMAP, `mapped_by` is a user namespace."""
    wanted = struct.pack("=QQQQ", attributes, 0, 0, max(mapped_by, 0))
    flags = ctypes.c_uint(_AT_EMPTY_PATH | _AT_RECURSIVE)
    _call(_SYS_MOUNT_SETATTR, "mount_setattr", tree, b"", flags, wanted, ctypes.c_size_t(len(wanted)))


def set_mount_attributes(path: str, attributes: int) -> None:
    """Add attributes to the one mount at a path."""
    wanted = struct.pack("=QQQQ", attributes, 0, 0, 0)
    arguments = (_AT_FDCWD, os.fsencode(path), ctypes.c_uint(0), wanted, ctypes.c_size_t(len(wanted)))
    _call(_SYS_MOUNT_SETATTR, f"mount_setattr({path})", *arguments)


def attach_tree(tree: int, target: str) -> None:
    """Mount a tree at a path."""
    flags = ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH)
    _call(_SYS_MOVE_MOUNT, f"move_mount({target})", tree, b"", _AT_FDCWD, os.fsencode(target), flags)


def enter_root(new_root: str) -> None:
    """Make a mount the root of this mount namespace and let go of the old one."""
    machine = os.uname().machine
    if machine not in _SYS_PIVOT_ROOT:
        raise OSError(f"pivot_root: its number on {machine} is not known")
    os.chdir(new_root)
    _call(_SYS_PIVOT_ROOT[machine], "pivot_root", b".", b".")
    _checked(_libc.umount2(b".", MNT_DETACH), "umount2(old root)")
    os.chdir("/")


# --- Landlock and seccomp ----------------------------------------------------------------------


def landlock_version() -> int:
    """The Landlock version of the running kernel; 0 without Landlock."""
    answer = _libc.syscall(
        ctypes.c_long(_SYS_LANDLOCK_CREATE_RULESET),
        None,
        ctypes.c_size_t(0),
        ctypes.c_uint(_LANDLOCK_VERSION),
    )
    return max(int(answer), 0)


def landlock_create(attributes: bytes) -> int:
    """A descriptor of a new set of rules."""
    size = ctypes.c_size_t(len(attributes))
    return _call(_SYS_LANDLOCK_CREATE_RULESET, "landlock_create_ruleset", attributes, size, ctypes.c_uint(0))


def landlock_allow_path(ruleset: int, access: int, path: int, name: str) -> None:
    """Allow these accesses at and below an open path."""
    rule = struct.pack("=Qi", access, path)
    what = f"landlock_add_rule({name})"
    _call(_SYS_LANDLOCK_ADD_RULE, what, ruleset, _LANDLOCK_RULE_PATH, rule, ctypes.c_uint(0))


def landlock_allow_port(ruleset: int, access: int, port: int) -> None:
    """Allow these accesses to a TCP port."""
    rule = struct.pack("=QQ", access, port)
    what = f"landlock_add_rule(port {port})"
    _call(_SYS_LANDLOCK_ADD_RULE, what, ruleset, _LANDLOCK_RULE_PORT, rule, ctypes.c_uint(0))


def landlock_restrict(ruleset: int) -> None:
    """Restrict this thread, and what it starts, to the rules."""
    _call(_SYS_LANDLOCK_RESTRICT_SELF, "landlock_restrict_self", ruleset, ctypes.c_uint(0))


class Filter:
    """A seccomp program where the kernel can read it: made once, and shared by every fork."""

    def __init__(self, code: bytes) -> None:
        self._code = ctypes.create_string_buffer(code, len(code))
        self._program = _SocketFilterProgram(len(code) // 8, ctypes.cast(self._code, ctypes.c_void_p))

    def install(self) -> None:
        """Put it on this thread, and what it starts."""
        program = ctypes.byref(self._program)
        _prctl(_PR_SET_SECCOMP, "prctl(PR_SET_SECCOMP)", _SECCOMP_MODE_FILTER, program)
