"""Trial of a tree-wide memory bound, on a throw-away tree of three processes.

The tree starts like a worker, and two of its processes allocate memory: a bound that does not count both is
useless. It is not driven over the limit: each OOM kill would write a page to the kernel log.
"""

import contextlib
import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from typing import IO, Final

from toolkeep.errors import ToolkeepError
from toolkeep.limits import MIB
from toolkeep.sandbox.cgroups import Bounds, Cgroups, NoCgroup
from toolkeep.sandbox.isolation_levels import Mechanism
from toolkeep.sandbox.launch import START_FILE, interpreter
from toolkeep.sandbox.proc_stats import tree_bytes

_TAKEN_BYTES: Final = 2 * 16 * MIB
"""What two processes allocate, 16 MiB each (`_TAKEN_BYTES` of `guest.trial`): well below the limit in
`_BOUNDS`, so that the trial only measures."""
_BOUNDS: Final = Bounds(memory_bytes=256 * MIB, processes=16)
_SECONDS: Final = 20.0
"""Time limit of each step of the trial; a loaded machine needs one or two seconds."""
_READY: Final = b".."
"""One byte from each process that has allocated its memory."""


def try_tree_bound(mechanism: Mechanism, launcher: Sequence[str] = ()) -> str:
    """Why the mechanism does not work here; empty if it does."""
    try:
        seen = _seen_by_cgroup(launcher) if mechanism is Mechanism.MEMORY_CGROUP else _seen_by_watch(launcher)
    except ToolkeepError as error:
        return error.message
    except (OSError, NoCgroup) as error:
        return str(error)
    return "" if seen >= _TAKEN_BYTES else f"of {_TAKEN_BYTES} bytes that two processes took, it saw {seen}"


def _seen_by_watch(launcher: Sequence[str]) -> int:
    with _tree(launcher) as (process, talk):
        _grow(talk)
        return tree_bytes(process, 2 * _TAKEN_BYTES)


def _seen_by_cgroup(launcher: Sequence[str]) -> int:
    groups = Cgroups()
    groups.open()
    try:
        with _tree(launcher) as (process, talk):
            pidfd = os.pidfd_open(process)
            try:
                group = groups.add(pidfd, _BOUNDS)
            finally:
                os.close(pidfd)
            _grow(talk)
            seen = group.taken_bytes()
        group.release()
        return seen
    finally:
        groups.close()


@contextlib.contextmanager
def _tree(launcher: Sequence[str]) -> Iterator[tuple[int, tuple[IO[bytes], IO[bytes]]]]:
    """A process that will start two others; all have exited afterwards."""
    command = [*launcher, interpreter(), "-I", "-S", "-E", START_FILE, "trial", "memory-tree"]
    started = subprocess.Popen(  # noqa: S603 -- our own file, by our own interpreter
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        cwd="/",
        bufsize=0,
    )
    if started.stdin is None or started.stdout is None:
        raise OSError("the trial has no pipes")
    try:
        yield started.pid, (started.stdin, started.stdout)
    finally:
        with started:  # Waits for the root of the tree.
            started.stdin.close()
            while _heard(started.stdout):  # End of file: the others have exited too.
                pass


def _grow(talk: tuple[IO[bytes], IO[bytes]]) -> None:
    """Let it start the others, and wait until they have allocated."""
    tell, told = talk
    tell.write(b"\n")
    said = b""
    while len(said) < len(_READY) and (more := _heard(told)):
        said += more
    if said != _READY:
        raise OSError(f"the trial ended without an answer: {said.decode(errors='replace')[:200]}")


def _heard(told: IO[bytes]) -> bytes:
    ready = select.poll()  # poll: select fails on descriptors above 1,023.
    ready.register(told, select.POLLIN)
    return os.read(told.fileno(), 1000) if ready.poll(_SECONDS * 1000) else b""
