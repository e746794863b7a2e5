"""System calls that name a path, a program or an address, for the observation of a program.

Output: a seccomp program that notifies a supervisor of each of them (SECCOMP_RET_USER_NOTIF), and where their
arguments are. The supervisor records a call and lets it continue: it decides nothing. The worker's own filter
comes first, so that a call which it refuses is refused, and not seen.
"""

import base64
from typing import Any, Final

from toolkeep.sandbox.seccomp_bpf import ALLOW, NOTIFY, assemble
from toolkeep.sandbox.syscalls import this_machine

_CALLS: Final = """
    open read - 0 1            openat read 0 1 2          creat write - 0 -
    stat look - 0 -            lstat look - 0 -           newfstatat look 0 1 -
    statx look 0 1 -           access look - 0 -          faccessat look 0 1 -
    faccessat2 look 0 1 -      readlink look - 0 -        readlinkat look 0 1 -
    statfs look - 0 -          chdir look - 0 -           execve run - 0 -
    mkdir write - 0 -          mkdirat write 0 1 -        rmdir write - 0 -
    unlink write - 0 -         unlinkat write 0 1 -       truncate write - 0 -
    rename write - 1 -         renameat write 2 3 -       renameat2 write 2 3 -
    link write - 1 -           linkat write 2 3 -         symlink write - 1 -
    symlinkat write 1 2 -      chmod write - 0 -          fchmodat write 0 1 -
    connect connect - 1 -
"""
"""Name, what it does, and which arguments are the folder's descriptor, the path or address, and the flags."""
_FIELDS: Final = 5


def observer() -> dict[str, Any]:
    """What a worker needs to observe its program; ValueError where there is no filter for this processor."""
    architecture = this_machine()
    if architecture is None:
        raise ValueError("there is no system call filter for this kind of processor")
    words = _CALLS.split()
    rows = [words[start : start + _FIELDS] for start in range(0, len(words), _FIELDS)]
    known = {name: rest for name, *rest in rows if name in architecture.numbers}
    filter_program = assemble(dict.fromkeys(known, NOTIFY), ALLOW, architecture, unknown=ALLOW)
    return {
        "filter": base64.b64encode(filter_program.for_process(1)).decode("ascii"),
        "calls": {str(architecture.numbers[name]): _arguments(rest) for name, rest in known.items()},
    }


def _arguments(words: list[str]) -> list[str | int]:
    return [words[0], *(-1 if word == "-" else int(word) for word in words[1:])]
