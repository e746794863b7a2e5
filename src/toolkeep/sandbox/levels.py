"""What each level of isolation promises, and which mechanisms of the kernel each promise needs.

Knows names only. Whether a mechanism works on this machine is for `probe` to show.
"""

import functools
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Final


class Isolation(StrEnum):
    """The four levels (SBX-1); each promises what the one before it does."""

    NONE = "none"
    STANDARD = "standard"
    STRICT = "strict"
    RESTRICTED = "restricted"


class Guarantee(StrEnum):
    """One promise about a call."""

    TREE_KILL = "tree-kill"
    """Every process that it started ends with it."""
    MEMORY_BOUND = "memory-bound"
    """It takes no more memory than granted, all its processes together."""
    ENV_CLEAN = "env-clean"
    """It sees no environment variable of the host."""
    FS_WRITE = "fs-write"
    """It changes no file that is not granted."""
    FS_READ = "fs-read"
    """It reads no file that is neither granted nor code."""
    FS_METADATA = "fs-metadata"
    """It learns no name, size or time of such a file."""
    DISK_BOUND = "disk-bound"
    """Its scratch folder has a size, and goes when it does."""
    NET_CLOSED = "net-closed"
    """It reaches no network."""
    IPC_CLOSED = "ipc-closed"
    """It reaches no other process by shared memory, queues, sockets or signals."""
    KERNEL_SURFACE = "kernel-surface"
    """It makes only the system calls that tools need."""


class Mechanism(StrEnum):
    """One thing that the kernel must do, and be seen doing."""

    USER_NAMESPACE = "user-namespace"
    PID_NAMESPACE = "pid-namespace"
    MOUNT_NAMESPACE = "mount-namespace"
    NETWORK_NAMESPACE = "network-namespace"
    IPC_NAMESPACE = "ipc-namespace"
    LANDLOCK = "landlock"
    LANDLOCK_PORTS = "landlock-ports"
    """No level needs it: without it a confined tool reaches no host, and all else holds."""
    SECCOMP = "seccomp"
    MEMORY_LIMIT = "memory-limit"
    MEMORY_WATCH = "memory-watch"
    MEMORY_CGROUP = "memory-cgroup"
    CLEAN_START = "clean-start"


NEEDS: Final[Mapping[Guarantee, AbstractSet[Mechanism]]] = {
    Guarantee.TREE_KILL: {Mechanism.USER_NAMESPACE, Mechanism.PID_NAMESPACE},
    Guarantee.MEMORY_BOUND: {Mechanism.MEMORY_LIMIT},
    Guarantee.ENV_CLEAN: {Mechanism.CLEAN_START, Mechanism.PID_NAMESPACE},
    Guarantee.FS_WRITE: {Mechanism.MOUNT_NAMESPACE, Mechanism.LANDLOCK},
    Guarantee.FS_READ: {Mechanism.MOUNT_NAMESPACE, Mechanism.LANDLOCK},
    Guarantee.FS_METADATA: {Mechanism.MOUNT_NAMESPACE},
    Guarantee.DISK_BOUND: {Mechanism.MOUNT_NAMESPACE},
    Guarantee.NET_CLOSED: {Mechanism.NETWORK_NAMESPACE, Mechanism.SECCOMP},
    Guarantee.IPC_CLOSED: {Mechanism.IPC_NAMESPACE, Mechanism.NETWORK_NAMESPACE, Mechanism.SECCOMP},
    Guarantee.KERNEL_SURFACE: {Mechanism.SECCOMP},
}

_STANDARD: Final = frozenset({Guarantee.TREE_KILL, Guarantee.MEMORY_BOUND, Guarantee.ENV_CLEAN})

PROMISES: Final[Mapping[Isolation, AbstractSet[Guarantee]]] = {
    Isolation.NONE: frozenset(),
    Isolation.STANDARD: _STANDARD,
    Isolation.STRICT: frozenset(Guarantee),
    Isolation.RESTRICTED: frozenset(Guarantee),
}


TREE_BOUNDS: Final = (Mechanism.MEMORY_CGROUP, Mechanism.MEMORY_WATCH)
"""A limit is for each process. Where there may be several, one of these counts them together; the first that
works is taken. Restricted has one process."""

_WITH_PROCESSES: Final = frozenset({Isolation.STANDARD, Isolation.STRICT})


def needed(level: Isolation) -> AbstractSet[Mechanism]:
    """The mechanisms that a level is made of here, or may be."""
    found = frozenset[Mechanism]().union(*(NEEDS[guarantee] for guarantee in PROMISES[level]))
    found |= {Mechanism.LANDLOCK_PORTS} if level is Isolation.STRICT else set()
    return found | set(TREE_BOUNDS) if level in _WITH_PROCESSES else found


def missing(level: Isolation, working: AbstractSet[Mechanism]) -> Mapping[Guarantee, AbstractSet[Mechanism]]:
    """The promises of a level that cannot be kept with these mechanisms, and what each lacks."""
    lacking = {guarantee: NEEDS[guarantee] - working for guarantee in sorted(PROMISES[level])}
    if level in _WITH_PROCESSES and working.isdisjoint(TREE_BOUNDS):
        lacking[Guarantee.MEMORY_BOUND] |= set(TREE_BOUNDS)
    return {guarantee: absent for guarantee, absent in lacking.items() if absent}


@functools.cache
def in_use(level: Isolation, memory_by: Mechanism) -> tuple[str, ...]:
    """The mechanisms that keep the promises of a level, for the record of a call."""
    needed = (NEEDS[guarantee] for guarantee in PROMISES[level])
    used = {memory_by}.union(*needed) if level is not Isolation.NONE else set()
    return tuple(sorted(mechanism.value for mechanism in used))


def memory_bound(level: Isolation, *, may_spawn: bool = False) -> Mechanism:
    """What bounds the memory of a worker on every machine that has the level."""
    has_processes = may_spawn or level is Isolation.STANDARD
    return Mechanism.MEMORY_WATCH if has_processes else Mechanism.MEMORY_LIMIT
