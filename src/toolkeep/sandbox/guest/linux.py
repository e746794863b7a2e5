"""Wrappers of Linux system calls that the standard library lacks, by ctypes.

Each raises OSError with the name and target of the failed call. Trusts its callers: no policy here.
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
    # Resolve the symbols once in the zygote; otherwise each forked worker would pay for the lookup.
    getattr(_libc, _name)

CLONE_PARENT: Final = 0x0000_8000
CLONE_NEWNS: Final = 0x0002_0000
CLONE_NEWCGROUP: Final = 0x0200_0000
CLONE_NEWUTS: Final = 0x0400_0000
CLONE_NEWIPC: Final = 0x0800_0000
CLONE_NEWUSER: Final = 0x1000_0000
CLONE_NEWPID: Final = 0x2000_0000
CLONE_NEWNET: Final = 0x4000_0000

MS_RDONLY: Final = 1
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

_RTM_NEWROUTE: Final = 24
_NLM_F_REQUEST: Final = 1
_NLM_F_ACK: Final = 4
_NLM_F_CREATE: Final = 0x400
_RT_TABLE_LOCAL: Final = 255
_RTPROT_BOOT: Final = 3
_RT_SCOPE_HOST: Final = 254
_RTN_LOCAL: Final = 2
_RTA_OIF: Final = 4

_AT_FDCWD: Final = -100
_AT_EMPTY_PATH: Final = 0x1000
_AT_RECURSIVE: Final = 0x8000
_OPEN_TREE_CLONE: Final = 1
_OPEN_TREE_CLOEXEC: Final = os.O_CLOEXEC
_MOVE_MOUNT_F_EMPTY_PATH: Final = 4
_RESOLVE_NO_SYMLINKS: Final = 4
_FSOPEN_CLOEXEC: Final = 1
_FSCONFIG_SET_STRING: Final = 1
_FSCONFIG_SET_FD: Final = 5
_FSCONFIG_CMD_CREATE: Final = 6
_FSMOUNT_CLOEXEC: Final = 1

# From 424 on all architectures share one numbering; pivot_root is older.
_SYS_OPEN_TREE: Final = 428
_SYS_MOVE_MOUNT: Final = 429
_SYS_FSOPEN: Final = 430
_SYS_FSCONFIG: Final = 431
_SYS_FSMOUNT: Final = 432
_SYS_CLOSE_RANGE: Final = 436
_SYS_OPENAT2: Final = 437
_SYS_PIDFD_GETFD: Final = 438
_SYS_MOUNT_SETATTR: Final = 442
_SYS_LANDLOCK_CREATE_RULESET: Final = 444
_SYS_LANDLOCK_ADD_RULE: Final = 445
_SYS_LANDLOCK_RESTRICT_SELF: Final = 446
_SYS_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
_SYS_PROCESS_VM_READV: Final = {"x86_64": 310, "aarch64": 270}
_SECCOMP_SET_MODE_FILTER: Final = 1
_SECCOMP_FILTER_FLAG_NEW_LISTENER: Final = 8
_SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: Final = 32
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
    """unshare(2): move this process into new namespaces."""
    _checked(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(descriptor: int, kind: int) -> None:
    """setns(2): enter an existing namespace."""
    _checked(_libc.setns(descriptor, kind), f"setns({kind:#x})")


def close_from(lowest: int) -> None:
    """close_range(2): close this descriptor and all higher ones."""
    _call(
        _SYS_CLOSE_RANGE, "close_range", ctypes.c_uint(lowest), ctypes.c_uint(0xFFFF_FFFF), ctypes.c_uint(0)
    )


def die_with_parent(signal_number: int) -> None:
    """PR_SET_PDEATHSIG: get this signal when the parent dies. The kernel clears it on a credential change."""
    _prctl(_PR_SET_PDEATHSIG, "prctl(PR_SET_PDEATHSIG)", signal_number)


def set_dumpable(*, is_dumpable: bool) -> None:
    """PR_SET_DUMPABLE: whether processes of the same user may ptrace this one and read its /proc files."""
    _prctl(_PR_SET_DUMPABLE, "prctl(PR_SET_DUMPABLE)", int(is_dumpable))


def forbid_new_privileges() -> None:
    """PR_SET_NO_NEW_PRIVS: execve gains no privileges through setuid or file capabilities. Irrevocable."""
    _prctl(_PR_SET_NO_NEW_PRIVS, "prctl(PR_SET_NO_NEW_PRIVS)", 1)


def raise_loopback() -> None:
    """Bring up `lo` in this network namespace; a new one starts with it down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", _IFF_UP)
        fcntl.ioctl(control, _SIOCSIFFLAGS, request)


def route_all_to_loopback() -> None:
    """In this network namespace, deliver connections to any IPv4 address to whoever listens here.

    As `ip route add local 0.0.0.0/0 dev lo` (rtnetlink(7)).
    """
    attributes = struct.pack("=HHi", 8, _RTA_OIF, socket.if_nametoindex("lo"))
    route = struct.pack(
        "=BBBBBBBBI", socket.AF_INET, 0, 0, 0, _RT_TABLE_LOCAL, _RTPROT_BOOT, _RT_SCOPE_HOST, _RTN_LOCAL, 0
    )
    flags = _NLM_F_REQUEST | _NLM_F_ACK | _NLM_F_CREATE
    body = route + attributes
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(body), _RTM_NEWROUTE, flags, 1, 0) + body)
        status = struct.unpack_from("=i", kernel.recv(4096), 16)[0]
    if status:
        raise OSError(-status, f"a route to loopback: {os.strerror(-status)}")


def drop_bounding_set() -> None:
    """Remove every capability from the bounding set, so that no execve in this user namespace regains one."""
    for capability in range(_capabilities()):
        _prctl(_PR_CAPBSET_DROP, "prctl(PR_CAPBSET_DROP)", capability)


@functools.cache
def _capabilities() -> int:
    """Number of capabilities that the running kernel knows."""
    return next(number for number in itertools.count() if _libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) < 0)


def drop_capabilities() -> None:
    """capset(2): drop the effective, permitted and inheritable sets."""
    _checked(_libc.capset(_CAPABILITY_HEADER, _NO_CAPABILITIES), "capset")


def read_memory(process: int, address: int, size: int) -> bytes:
    """process_vm_readv(2): memory of another process; empty where it cannot be read."""
    found = ctypes.create_string_buffer(size)
    local = struct.pack("=QQ", ctypes.addressof(found), size)
    remote = struct.pack("=QQ", address, size)
    number, one, none = _SYS_PROCESS_VM_READV[os.uname().machine], ctypes.c_ulong(1), ctypes.c_ulong(0)
    read = int(_libc.syscall(ctypes.c_long(number), ctypes.c_int(process), local, one, remote, one, none))
    return found.raw[: max(read, 0)]


_PIDFD_THREAD: Final = os.O_EXCL


def descriptor_of(thread: int, descriptor: int) -> int:
    """pidfd_getfd(2): a copy of a descriptor of another process, by one of its threads (Linux 6.9)."""
    pidfd = os.pidfd_open(thread, _PIDFD_THREAD)
    try:
        return _call(_SYS_PIDFD_GETFD, "pidfd_getfd", pidfd, ctypes.c_int(descriptor), ctypes.c_uint(0))
    finally:
        os.close(pidfd)


def connect(descriptor: int, address: bytes) -> None:
    """connect(2) to an address in the form of the kernel."""
    _checked(_libc.connect(descriptor, address, len(address)), "connect")


# --- paths ---------------------------------------------------------------------------------------


def open_without_symlinks(path: str) -> int:
    """Open a path with O_PATH and openat2(RESOLVE_NO_SYMLINKS); ELOOP if any component is a symlink.

    The host checked this path before. Whoever may write a parent folder can have put a symlink there since
    (TOCTOU); following it would mount or allow a path that nobody granted.
    """
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
    """open_tree(OPEN_TREE_CLONE): a detached, recursive copy of the mounts at a path."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE
    return _call(_SYS_OPEN_TREE, f"open_tree({path})", _AT_FDCWD, os.fsencode(path), ctypes.c_uint(flags))


def clone_tree_without_symlinks(path: str) -> int:
    """Like `clone_tree`, but the path must not contain symlinks."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE | _AT_EMPTY_PATH
    # Opened first and then cloned by descriptor: between a check by path and an open_tree by path, the folder
    # could be swapped.
    place = open_without_symlinks(path)
    try:
        return _call(_SYS_OPEN_TREE, f"open_tree({path})", place, b"", ctypes.c_uint(flags))
    finally:
        os.close(place)


def set_tree_attributes(tree: int, attributes: int, *, mapped_by: int = -1) -> None:
    """mount_setattr(2) on all mounts of a detached tree; with ATTR_IDMAP, `mapped_by` is a user namespace."""
    wanted = struct.pack("=QQQQ", attributes, 0, 0, max(mapped_by, 0))
    flags = ctypes.c_uint(_AT_EMPTY_PATH | _AT_RECURSIVE)
    _call(_SYS_MOUNT_SETATTR, "mount_setattr", tree, b"", flags, wanted, ctypes.c_size_t(len(wanted)))


def set_mount_attributes(path: str, attributes: int) -> None:
    """mount_setattr(2) on the single mount at a path."""
    wanted = struct.pack("=QQQQ", attributes, 0, 0, 0)
    arguments = (_AT_FDCWD, os.fsencode(path), ctypes.c_uint(0), wanted, ctypes.c_size_t(len(wanted)))
    _call(_SYS_MOUNT_SETATTR, f"mount_setattr({path})", *arguments)


def detached_proc(pid_namespace: int = -1) -> int:
    """A procfs that is mounted nowhere, of this process's pid namespace or (Linux 6.17) of another one."""
    opened = _call(_SYS_FSOPEN, "fsopen(proc)", b"proc", ctypes.c_uint(_FSOPEN_CLOEXEC))

    def configure(command: int, key: bytes | None, value: bytes | None, descriptor: int = 0) -> None:
        what = f"fsconfig(proc, {(key or b'create').decode()})"
        _call(_SYS_FSCONFIG, what, opened, ctypes.c_uint(command), key, value, descriptor)

    try:
        if pid_namespace >= 0:
            configure(_FSCONFIG_SET_FD, b"pidns", None, pid_namespace)
        configure(_FSCONFIG_SET_STRING, b"subset", b"pid")
        configure(_FSCONFIG_CMD_CREATE, None, None)
        attributes = ctypes.c_uint(ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC)
        return _call(_SYS_FSMOUNT, "fsmount(proc)", opened, ctypes.c_uint(_FSMOUNT_CLOEXEC), attributes)
    finally:
        os.close(opened)


def unmount(target: str) -> None:
    """umount2(MNT_DETACH)."""
    _checked(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount2({target})")


def attach_tree(tree: int, target: str) -> None:
    """move_mount(2): attach a detached tree at a path."""
    flags = ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH)
    _call(_SYS_MOVE_MOUNT, f"move_mount({target})", tree, b"", _AT_FDCWD, os.fsencode(target), flags)


def enter_root(new_root: str) -> None:
    """pivot_root(2) into a mount, then detach the old root."""
    machine = os.uname().machine
    if machine not in _SYS_PIVOT_ROOT:
        raise OSError(f"pivot_root: its number on {machine} is not known")
    os.chdir(new_root)
    # pivot_root(".", ".") stacks the old root on the new one, so no folder is needed to hold it. pivot_root
    # instead of chroot: with chroot the old root stays mounted, and a descriptor of a folder outside is a way
    # back.
    _call(_SYS_PIVOT_ROOT[machine], "pivot_root", b".", b".")
    # The old root must go, or every file of the host would still be reachable below it.
    unmount(".")
    os.chdir("/")


# --- Landlock and seccomp ----------------------------------------------------------------------


def landlock_version() -> int:
    """Landlock ABI version of the running kernel; 0 without Landlock."""
    answer = _libc.syscall(
        ctypes.c_long(_SYS_LANDLOCK_CREATE_RULESET),
        None,
        ctypes.c_size_t(0),
        ctypes.c_uint(_LANDLOCK_VERSION),
    )
    return max(int(answer), 0)


def landlock_create(attributes: bytes) -> int:
    """landlock_create_ruleset(2): descriptor of an empty ruleset."""
    size = ctypes.c_size_t(len(attributes))
    return _call(_SYS_LANDLOCK_CREATE_RULESET, "landlock_create_ruleset", attributes, size, ctypes.c_uint(0))


def landlock_allow_path(ruleset: int, access: int, path: int, name: str) -> None:
    """Add a rule: these accesses at and below an open path."""
    rule = struct.pack("=Qi", access, path)
    what = f"landlock_add_rule({name})"
    _call(_SYS_LANDLOCK_ADD_RULE, what, ruleset, _LANDLOCK_RULE_PATH, rule, ctypes.c_uint(0))


def landlock_allow_port(ruleset: int, access: int, port: int) -> None:
    """Add a rule: these accesses to a TCP port."""
    rule = struct.pack("=QQ", access, port)
    what = f"landlock_add_rule(port {port})"
    _call(_SYS_LANDLOCK_ADD_RULE, what, ruleset, _LANDLOCK_RULE_PORT, rule, ctypes.c_uint(0))


def landlock_restrict(ruleset: int) -> None:
    """landlock_restrict_self(2): enforce the ruleset on this thread and its children, irrevocably."""
    _call(_SYS_LANDLOCK_RESTRICT_SELF, "landlock_restrict_self", ruleset, ctypes.c_uint(0))


class Filter:
    """A seccomp BPF program in memory that the kernel can read; built once, shared by all forks."""

    def __init__(self, code: bytes) -> None:
        self._code = ctypes.create_string_buffer(code, len(code))
        self._program = _SocketFilterProgram(len(code) // 8, ctypes.cast(self._code, ctypes.c_void_p))

    def install(self) -> None:
        """PR_SET_SECCOMP: install the filter on this thread and its children."""
        program = ctypes.byref(self._program)
        _prctl(_PR_SET_SECCOMP, "prctl(PR_SET_SECCOMP)", _SECCOMP_MODE_FILTER, program)

    def install_with_listener(self) -> int:
        """seccomp(2): the same for a filter that notifies; the descriptor of its listener.

        A signal does not interrupt a call that the supervisor has received: it would be made a second time.
        """
        number, operation = _SYS_SECCOMP[os.uname().machine], ctypes.c_uint(_SECCOMP_SET_MODE_FILTER)
        flags = ctypes.c_uint(_SECCOMP_FILTER_FLAG_NEW_LISTENER | _SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
        return _call(number, "seccomp(NEW_LISTENER)", operation, flags, ctypes.byref(self._program))
