"""What /proc says of a worker and of the processes that it started, seen from the host.

Numbers of processes are those of the host's pid namespace. Reads only files that are open to everyone, and
where the kernel lets it the exact share of shared memory.
"""

import os
import re
from pathlib import Path
from typing import Final

_TRIES: Final = 3
_NUMBER: Final = re.compile(rb"^(\w+):\s*(\d+) kB", re.MULTILINE)

_TAKEN: Final = (b"RssAnon", b"RssShmem", b"VmPTE", b"VmSwap")
"""Of `status`. Pages of files are left out: the kernel drops them when it needs the room."""

_SHARE: Final = (b"Pss_Anon", b"Pss_Shmem", b"SwapPss")
"""Of `smaps_rollup`: each page is divided by the number of processes that have it."""

_BYTES: Final = 1024

_STATE: Final = re.compile(rb"^State:\s*(\w)", re.MULTILINE)
_SWITCHES: Final = re.compile(rb"^\w*voluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)
_STILL: Final = frozenset({b"T", b"Z", b"X"})
"""Stopped, or dead. A task that a tracer holds (`t`) is not among them: the tracer could continue it."""

Still = dict[int, tuple[bytes, ...]]
"""The state of each thread of stopped processes, and how often each has run."""


def host_pid(pidfd: int) -> int:
    """The number of a process that lives, whatever it is called in its own namespace."""
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "Pid" and int(value) > 0:
            return int(value)
    raise ProcessLookupError("the process has ended, or is not seen from here")


def tree_bytes(first: int, enough: int) -> int:
    """How much memory a process and all that it started take.

    What is shared counts once for each, unless that makes more than `enough`: then it is looked at again, and
    counted by its share where the kernel lets us see it. Looked at anew if a process came or went meanwhile.
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


def still(first: int) -> Still | None:
    """The threads of all descendants of a process, or None where one of them is not stopped.

    No single look is a proof: a process that was looked at early may be continued by one that is looked at
    late. Two equal ones are: each thread has the same count of context switches, so that it did not run from
    the one look to the other. All were stopped at the moment between the two, and nobody is left to continue
    them, or to fork.
    """
    found: Still = {}
    try:
        processes = _children(first)
        for process in processes:
            # First the states, then the children: a process that was stopped before forks none afterwards.
            for thread in map(int, os.listdir(f"/proc/{process}/task")):
                status = _read(f"/proc/{process}/task/{thread}/status")
                state = _STATE.search(status)
                if state is None or state[1] not in _STILL:
                    return None
                found[thread] = (state[1], *_SWITCHES.findall(status))
            processes += _children(process)
    except OSError:  # it came or went meanwhile, so that something runs
        return None
    return found


def _share(process: int, taken: int) -> int:
    """Its part of what it takes; all of it where that is not for us to see."""
    exact = _numbers(process, "smaps_rollup", _SHARE)
    return min(taken, exact) if exact else taken


def _tree(first: int) -> tuple[list[int], bool]:
    """A process and its descendants, and whether none of them ended while they were listed."""
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
    """The sum of these numbers in bytes; None if the process is gone, or the file is closed to us."""
    try:
        text = _read(f"/proc/{process}/{file}")
    except OSError:
        return None
    found = {name: int(number) for name, number in _NUMBER.findall(text)}
    return sum(found.get(name, 0) for name in names) * _BYTES


def _read(path: str) -> bytes:
    """A small file, in the three calls that it takes: this is done many times a second."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 1 << 16)
    finally:
        os.close(file)
