"""Isolation levels: the guarantees of each, and the kernel mechanisms that each guarantee needs.

Names only. `kernel_probe` finds out whether a mechanism works on this machine.
"""

import functools
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Final


class Isolation(StrEnum):
    """The four levels (SBX-1); each includes the guarantees of the one before it."""

    NONE = "none"
    STANDARD = "standard"
    STRICT = "strict"
    RESTRICTED = "restricted"


class Guarantee(StrEnum):
    """One promise about a call."""

    TREE_KILL = "tree-kill"
    """Every process that it started ends with it."""
    MEMORY_BOUND = "memory-bound"
    """Memory of all its processes together stays within the limit."""
    ENV_CLEAN = "env-clean"
    """No environment variable of the host is visible."""
    FS_WRITE = "fs-write"
    """No file outside the grant is changed."""
    FS_READ = "fs-read"
    """No file is read that is neither granted nor code."""
    FS_METADATA = "fs-metadata"
    """No name, size or time of such a file is visible."""
    DISK_BOUND = "disk-bound"
    """The scratch folder has a size limit and is removed with the worker."""
    NET_CLOSED = "net-closed"
    """No network access."""
    IPC_CLOSED = "ipc-closed"
    """No shared memory, message queue, socket or signal reaches another process."""
    KERNEL_SURFACE = "kernel-surface"
    """Only the system calls that tools need."""


class Mechanism(StrEnum):
    """One kernel feature, which must show its effect in a trial."""

    USER_NAMESPACE = "user-namespace"
    PID_NAMESPACE = "pid-namespace"
    MOUNT_NAMESPACE = "mount-namespace"
    NETWORK_NAMESPACE = "network-namespace"
    IPC_NAMESPACE = "ipc-namespace"
    LANDLOCK = "landlock"
    LANDLOCK_PORTS = "landlock-ports"
    """Required by no level: without it a confined tool reaches no host, and everything else holds."""
    SECCOMP = "seccomp"
    SECCOMP_SUPERVISOR = "seccomp-supervisor"
    """Required by no level: without it a persistent program has no unix sockets."""
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
"""Two mechanisms for one guarantee are defence in depth: a mount namespace hides files, and Landlock still
denies what a bug in the mounts would show."""

_STANDARD: Final = frozenset({Guarantee.TREE_KILL, Guarantee.MEMORY_BOUND, Guarantee.ENV_CLEAN})

PROMISES: Final[Mapping[Isolation, AbstractSet[Guarantee]]] = {
    Isolation.NONE: frozenset(),
    Isolation.STANDARD: _STANDARD,
    Isolation.STRICT: frozenset(Guarantee),
    Isolation.RESTRICTED: frozenset(Guarantee),
}


TREE_BOUNDS: Final = (Mechanism.MEMORY_CGROUP, Mechanism.MEMORY_WATCH)
"""An rlimit counts per process. Where a worker may have several, one of these counts them together; the first
that works is used. `restricted` has one process."""

_WITH_PROCESSES: Final = frozenset({Isolation.STANDARD, Isolation.STRICT})


def needed(level: Isolation, *, has_processes: bool = True) -> AbstractSet[Mechanism]:
    """Mechanisms that a level uses, or may use; without `has_processes` for workers of one process."""
    found = frozenset[Mechanism]().union(*(NEEDS[guarantee] for guarantee in PROMISES[level]))
    found |= {Mechanism.LANDLOCK_PORTS} if level is Isolation.STRICT else set()
    if has_processes and level is Isolation.STRICT:
        found |= {Mechanism.SECCOMP_SUPERVISOR}
    return found | set(TREE_BOUNDS) if has_processes and level in _WITH_PROCESSES else found


def missing(
    level: Isolation, working: AbstractSet[Mechanism], *, has_processes: bool = True
) -> Mapping[Guarantee, AbstractSet[Mechanism]]:
    """Guarantees that cannot be kept with these mechanisms, and what each lacks."""
    lacking = {guarantee: NEEDS[guarantee] - working for guarantee in sorted(PROMISES[level])}
    if has_processes and level in _WITH_PROCESSES and working.isdisjoint(TREE_BOUNDS):
        lacking[Guarantee.MEMORY_BOUND] |= set(TREE_BOUNDS)
    return {guarantee: absent for guarantee, absent in lacking.items() if absent}


@functools.cache
def in_use(level: Isolation, memory_by: Mechanism) -> tuple[str, ...]:
    """Mechanisms that a level's promises rest on, for the audit record of a call."""
    needed = (NEEDS[guarantee] for guarantee in PROMISES[level])
    used = {memory_by}.union(*needed) if level is not Isolation.NONE else set()
    return tuple(sorted(mechanism.value for mechanism in used))


def memory_bound(level: Isolation, *, may_spawn: bool = False) -> Mechanism:
    """The memory bound that every machine with this level has."""
    has_processes = may_spawn or level is Isolation.STANDARD
    return Mechanism.MEMORY_WATCH if has_processes else Mechanism.MEMORY_LIMIT
