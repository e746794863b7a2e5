"""What each level is expected to stop, and what it does not guarantee.

Written out, not derived from `isolation_levels.PROMISES`: a guarantee dropped there must be dropped here too,
on purpose (a test compares the two).
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from toolkeep.escape_suite.attempts.declare import Attempt
from toolkeep.sandbox.isolation_levels import Isolation

LEVELS: Final = (Isolation.STANDARD, Isolation.STRICT, Isolation.RESTRICTED)

_ALL: Final = frozenset(LEVELS)
_CONFINED: Final = frozenset({Isolation.STRICT, Isolation.RESTRICTED})

STOPPED_AT: Final[Mapping[str, AbstractSet[Isolation]]] = {
    "tree-kill": _ALL,
    "memory-bound": _ALL,
    "env-clean": _ALL,
    "fs-write": _CONFINED,
    "fs-read": _CONFINED,
    "fs-metadata": _CONFINED,
    "disk-bound": _CONFINED,
    "net-closed": _CONFINED,
    "ipc-closed": _CONFINED,
    "kernel-surface": _CONFINED,
    # SBX-1 itself: processes, files and CPU time are limited, and no reply harms the host.
    "bounded": _ALL,
    "host-sound": _ALL,
}

_WATCHED: Final = "memory of several processes where no cgroup bounds it: more can be had between two looks"

NOT_PROMISED: Final[Mapping[Isolation, tuple[str, ...]]] = {
    Isolation.STANDARD: (
        "files: it reads, changes and deletes whatever its user may; /tmp is the host's, /dev/shm is not",
        "the network and unix sockets: it connects, listens, and can ask other programs to act for it",
        "what it leaves behind: files, and jobs that other programs run for it later",
        "other processes of its user through what they listen to; their numbers and memory are out of reach",
        "the kernel: only the calls that reach beyond the process or outlive it are refused",
        _WATCHED,
        "the answer: the tool may lie about its own call",
    ),
    Isolation.STRICT: (
        "what is granted: a folder for writing can be emptied, filled and set with links and traps of text",
        "code and the system's folders: they can be read, and their names learnt",
        _WATCHED,
        "memory of the kernel: pipes, locks, scratch and /dev/shm come on top of what is granted",
        "hidden channels: locks on files that two calls can read, timing, load, caches of the processor",
        "faults of the kernel in the calls that ordinary programs need",
        "the answer: the tool may lie about its own call, and answer before it has read the request",
    ),
    Isolation.RESTRICTED: (
        "code and the system's folders: they can be read, and their names learnt",
        "hidden channels: timing, load, caches of the processor",
        "faults of the kernel in memory, threads, timers and reading files",
        "the answer: the tool may lie about its own call, and answer before it has read the request",
    ),
}


def levels_of(attempt: Attempt) -> tuple[Isolation, ...]:
    """Levels that guarantee to stop an attempt."""
    return tuple(level for level in LEVELS if level in STOPPED_AT[attempt.breaks])
