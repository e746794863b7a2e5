"""System calls by name, for those that Python lacks."""

import ctypes
import errno
import os
from typing import Any, Final

libc: Final = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

_NUMBERS: Final = {
    # name: x86_64, aarch64
    "add_key": (248, 217),
    "bpf": (321, 280),
    "cachestat": (451, 451),
    "capset": (126, 91),
    "clone": (56, 220),
    "clone3": (435, 435),
    "execveat": (322, 281),
    "fchmodat2": (452, 452),
    "file_setattr": (469, 469),
    "fsopen": (430, 430),
    "io_uring_setup": (425, 425),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "landlock_add_rule": (445, 445),
    "landlock_create_ruleset": (444, 444),
    "listmount": (458, 458),
    "lsm_list_modules": (461, 461),
    "memfd_secret": (447, 447),
    "modify_ldt": (154, -1),
    "mount_setattr": (442, 442),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "renameat2": (316, 276),
    "rt_sigqueueinfo": (129, 138),
    "seccomp": (317, 277),
    "setxattrat": (463, 463),
    "statmount": (457, 457),
    "tgkill": (234, 131),
    "userfaultfd": (323, 282),
}

CLONE_NEWNS: Final = 0x0002_0000
CLONE_NEWUTS: Final = 0x0400_0000
CLONE_NEWIPC: Final = 0x0800_0000
CLONE_NEWUSER: Final = 0x1000_0000
CLONE_NEWPID: Final = 0x2000_0000
CLONE_NEWNET: Final = 0x4000_0000
CLONE_PARENT: Final = 0x0000_8000
CLONE_UNTRACED: Final = 0x0080_0000
SIGCHLD: Final = 17
AT_FDCWD: Final = -100
PR_SET_NAME: Final = 15

EARLY_MARK: Final = "esc-at-import"
"""Name of processes that imported an attempt and were not called yet."""


def checked(result: int) -> int:
    """Result of a call, or OSError."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def call(name: str, *arguments: Any) -> int:
    """Call a function of the C library."""
    return checked(getattr(libc, name)(*map(_wide, arguments)))


def raw(name: str, *arguments: Any) -> int:
    """Call a system call by number."""
    number = _NUMBERS[name][os.uname().machine != "x86_64"]
    if number < 0:
        raise OSError(errno.ENOSYS, f"{name} is not on this architecture")
    return checked(libc.syscall(ctypes.c_long(number), *map(_wide, arguments)))


def _wide(value: Any) -> Any:
    return ctypes.c_long(value) if isinstance(value, int) else value


def unshare(flags: int) -> None:
    """Enter new namespaces."""
    call("unshare", flags)


def become_root_of_a_namespace(others: int = 0) -> None:
    """What anyone may do where nothing forbids it: full capabilities in an own user namespace."""
    if os.geteuid() != 0:
        unshare(CLONE_NEWUSER | others)
    elif others:
        unshare(others)


def take_name(mark: str) -> None:
    """Set the process name, so that the host can find it."""
    call("prctl", PR_SET_NAME, ctypes.create_string_buffer(mark.encode()), 0, 0, 0)
