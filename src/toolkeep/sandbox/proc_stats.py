"""Reads /proc about a worker's process tree, from the host: what it takes, and whether it is stopped.

Pids are those of the host's pid namespace. Uses only world-readable files, and smaps_rollup where permitted.
"""

import os
import re
import time
from typing import Final, NamedTuple

_TRIES: Final = 3
_PID: Final = re.compile(rb"^Pid:\s*([1-9]\d*)$", re.MULTILINE)
_PEAK: Final = re.compile(rb"^VmHWM:\s*(\d+) kB", re.MULTILINE)
_NUMBER: Final = re.compile(rb"^(\w+):\s*(\d+) kB", re.MULTILINE)

_TAKEN: Final = (b"RssAnon", b"RssShmem", b"VmPTE", b"VmSwap")
"""Fields of `status`. File-backed pages are left out: the kernel can drop them."""

_SHARE: Final = (b"Pss_Anon", b"Pss_Shmem", b"SwapPss")
"""Fields of `smaps_rollup`: each page divided by the number of processes that map it."""

_BYTES: Final = 1024
"""A unit: /proc reports sizes in kB, by which it means 1,024 bytes (proc(5))."""

_STATE: Final = re.compile(rb"^State:\s*(\w)", re.MULTILINE)
_SWITCHES: Final = re.compile(rb"^\w*voluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)
_STOPPED: Final = frozenset({b"T", b"Z", b"X"})
"""Stopped, zombie, dead. Not `t` (tracing stop): the tracer could continue the task."""

StoppedThreads = dict[int, tuple[bytes, ...]]
"""State and context-switch counts of each thread of stopped processes."""


def host_pid(pidfd: int) -> int:
    """Pid of a living process in the host's namespace, from its pidfd."""
    found = _PID.search(_read(f"/proc/self/fdinfo/{pidfd}"))
    if found is not None:
        return int(found[1])
    raise ProcessLookupError("the process has ended, or is not seen from here")


class ProcessUse(NamedTuple):
    """What a process has taken so far."""

    cpu_ms: float
    """Of all its threads, and of the children that it has waited for (in steps of 10 ms)."""
    peak_bytes: int | None
    """Its peak resident memory; None if it has exited already."""


def process_use(pidfd: int) -> ProcessUse | None:
    """What a process has taken, as the kernel counts it; None if it is gone.

    Between exit and reaping its times can still be read. A pid that was reused meanwhile cannot be meant:
    the caller's process is reaped only after the caller has killed it.
    """
    try:
        process = host_pid(pidfd)
        times = _read(f"/proc/{process}/stat").rpartition(b")")[2].split()
        children_s = (int(times[13]) + int(times[14])) / _TICKS
        own_s = time.clock_gettime((~process << 3) | _CPU_CLOCK)
        peak = _PEAK.search(_read(f"/proc/{process}/status"))
        peak_bytes = None if peak is None else int(peak[1]) * _BYTES
        return ProcessUse(round((own_s + children_s) * 1000, 3), peak_bytes)
    except (OSError, IndexError, ValueError):
        return None


_TICKS: Final = os.sysconf("SC_CLK_TCK")
_CPU_CLOCK: Final = 2
"""CPUCLOCK_SCHED: with the inverted pid above it, the clock of all threads of a process, as
clock_getcpuclockid(3) makes it."""


def tree_bytes(first: int, enough: int) -> int:
    """Memory use of a process and its descendants.

    Shared memory is counted once per process, unless that exceeds `enough`: then proportionally (PSS), where
    the kernel permits. Repeated if a process appeared or exited meanwhile.
    """
    most = 0
    for _ in range(_TRIES):
        processes, is_steady = _tree(first)
        taken = {process: _numbers(process, "status", _TAKEN) for process in processes}
        total = sum(map(int, filter(None, taken.values())))
        if total > enough:
            total = sum(_share(process, taken[process] or 0) for process in processes)
        most = max(most, total)
        if is_steady and None not in taken.values():
            break
    return most


def stopped_threads(first: int) -> StoppedThreads | None:
    """Threads of all descendants of a process, or None if one of them is not stopped.

    A single scan proves nothing: a process that was scanned early may be continued by one that is scanned
    late. Two equal scans do: each thread has the same context-switch counts, so none ran between them. All
    were stopped at the moment between the two scans, and nobody is left to continue them, or to fork.
    """
    found: StoppedThreads = {}
    try:
        processes = _children(first)
        for process in processes:
            # States first, then children: a process that is stopped forks no more afterwards.
            for thread in map(int, os.listdir(f"/proc/{process}/task")):
                status = _read(f"/proc/{process}/task/{thread}/status")
                state = _STATE.search(status)
                if state is None or state[1] not in _STOPPED:
                    return None
                found[thread] = (state[1], *_SWITCHES.findall(status))
            processes += _children(process)
    except OSError:  # It appeared or exited meanwhile: something runs.
        return None
    return found


def _share(process: int, taken: int) -> int:
    """Its proportional share; all of it if that is not readable."""
    exact = _numbers(process, "smaps_rollup", _SHARE)
    return min(taken, exact) if exact else taken


def _tree(first: int) -> tuple[list[int], bool]:
    """A process and its descendants, and whether none of them exited during the listing."""
    found, is_steady = [first], True
    for process in found:
        try:
            found += _children(process)
        except OSError:
            is_steady = False
    return found, is_steady


def _children(process: int) -> list[int]:
    children: list[int] = []
    with os.scandir(f"/proc/{process}/task") as threads:
        for thread in threads:
            children += map(int, _read(f"{thread.path}/children").split())
    return children


def _numbers(process: int, file: str, names: tuple[bytes, ...]) -> int | None:
    """Sum of these fields in bytes; None if the process is gone or the file is not readable."""
    try:
        text = _read(f"/proc/{process}/{file}")
    except OSError:
        return None
    found = {name: int(number) for name, number in _NUMBER.findall(text)}
    return sum(found.get(name, 0) for name in names) * _BYTES


def _read(path: str) -> bytes:
    """Read a small file with three system calls: this runs many times a second."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 1 << 16)
    finally:
        os.close(file)
