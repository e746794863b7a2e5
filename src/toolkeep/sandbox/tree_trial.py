"""Tries whether the memory of several processes can be bounded together, on a throw-away tree of three.

The tree is started as workers are, and two of its processes take memory: a bound that does not see what both
take is none. It is not driven over its bound: each time, the kernel would write a page about it into its log.
"""

import contextlib
import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from typing import IO, Final

from toolkeep.errors import ToolkeepError
from toolkeep.limits import MIB
from toolkeep.sandbox.cgroups import Bounds, Groups, NoCgroup
from toolkeep.sandbox.levels import Mechanism
from toolkeep.sandbox.processes import tree_bytes
from toolkeep.sandbox.zygote import START_FILE, interpreter

_TAKEN_BYTES: Final = 2 * 16 * MIB
_BOUNDS: Final = Bounds(memory_bytes=256 * MIB, processes=16)
_SECONDS: Final = 20.0
_READY: Final = b".."
"""What the two say when they have taken their memory."""


def try_tree_bound(mechanism: Mechanism, launcher: Sequence[str] = ()) -> str:
    """Why it does not work here; empty if it does."""
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
    groups = Groups()
    groups.open()
    try:
        with _tree(launcher) as (process, talk):
            pidfd = os.pidfd_open(process)
            try:
                group = groups.hold(pidfd, _BOUNDS)
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
    """A process that will start two others; all are gone afterwards."""
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
        with started:  # waits for the first of them
            started.stdin.close()
            while _heard(started.stdout):  # its end: the others are gone too
                pass


def _grow(talk: tuple[IO[bytes], IO[bytes]]) -> None:
    """Have it start the others, and wait until they have taken their memory."""
    tell, told = talk
    tell.write(b"\n")
    said = b""
    while len(said) < len(_READY) and (more := _heard(told)):
        said += more
    if said != _READY:
        raise OSError(f"the trial ended without an answer: {said.decode(errors='replace')[:200]}")


def _heard(told: IO[bytes]) -> bytes:
    ready = select.poll()  # unlike `select`, for descriptors of any number
    ready.register(told, select.POLLIN)
    return os.read(told.fileno(), 1000) if ready.poll(_SECONDS * 1000) else b""
