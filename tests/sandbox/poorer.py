"""Runs a command as on a poorer machine: poorer.py WHAT COMMAND…

`NUMBER[,NUMBER…]`  these system calls fail with EPERM, as a container's filter has it
`landlock`          the kernel was built without it: ENOSYS
`seccomp`           the kernel takes no filters
`user-namespaces`   none may be made: user.max_user_namespaces is 0 (in a namespace of its own)
`admin`             root holds no CAP_SYS_ADMIN, as in most containers
"""

import ctypes
import os
import struct
import sys
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
EPERM, EINVAL, ENOSYS = 1, 22, 38
CAP_SYS_ADMIN = 21
PRCTL = {"x86_64": 157, "aarch64": 167}[os.uname().machine]

Step = tuple[int, int, int, int]


def refuse(error: int) -> Step:
    return (0x06, 0, 0, 0x00050000 | error)


def deny(numbers: list[int], error: int) -> None:
    steps = [(0x20, 0, 0, 0)]
    for number in numbers:
        steps += [(0x15, 0, 1, number), refuse(error)]
    install(steps)


def deny_filters() -> None:
    """prctl(PR_SET_SECCOMP) is how one is put on."""
    is_prctl, load_option, is_filter = (0x15, 0, 3, PRCTL), (0x20, 0, 0, 16), (0x15, 0, 1, 22)
    install([(0x20, 0, 0, 0), is_prctl, load_option, is_filter, refuse(EINVAL)])


def install(steps: list[Step]) -> None:
    steps = [*steps, (0x06, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    checked(LIBC.prctl(38, 1, 0, 0, 0))
    checked(LIBC.prctl(22, ctypes.c_ulong(2), program, 0, 0))


def allow_no_user_namespace() -> None:
    """In a user namespace with all ids that this one has, so that nothing else is different."""
    ids = (
        Path("/proc/self/uid_map").read_text().split() if os.geteuid() == 0 else [os.getuid(), os.getuid(), 1]
    )
    groups = ids if os.geteuid() == 0 else [os.getgid(), os.getgid(), 1]
    parent = os.getpid()
    told, tell = os.pipe()
    mapper = os.fork()
    if mapper == 0:
        os.close(tell)
        os.read(told, 1)
        if os.geteuid() != 0:
            Path(f"/proc/{parent}/setgroups").write_text("deny")
        Path(f"/proc/{parent}/uid_map").write_text(f"{ids[0]} {ids[0]} {ids[2]}")
        Path(f"/proc/{parent}/gid_map").write_text(f"{groups[0]} {groups[0]} {groups[2]}")
        os._exit(0)
    checked(LIBC.unshare(0x10000000))
    os.close(tell)
    os.waitpid(mapper, 0)
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


def checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), "not made poorer")


def main(what: str) -> None:
    if what == "landlock":
        deny([444, 445, 446], ENOSYS)
    elif what == "seccomp":
        deny_filters()
    elif what == "user-namespaces":
        allow_no_user_namespace()
    elif what == "admin":
        checked(LIBC.prctl(24, CAP_SYS_ADMIN, 0, 0, 0))
    else:
        deny([int(number) for number in what.split(",")], EPERM)


if __name__ == "__main__":
    main(sys.argv[1])
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 -- that is its purpose
