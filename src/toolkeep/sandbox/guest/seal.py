"""What the kernel says of a template that is held in its fork: whether nothing of a call can come back to it.

Input: a stopped process that has run hostile code, and a procfs that shows it. Nothing that the process says
of itself counts. The caller has counted its threads and killed its processes since before the import, so no
other process has its memory.
"""

import os
from collections.abc import Iterator
from typing import Final, TextIO

from . import tracing

NOTHING: Final = "0" * 16
"""An empty set of capabilities or signals in /proc/PID/status."""
_STATUS_BYTES: Final = 1 << 14
"""More than it ever has; one read takes half the time of a text file."""


class Unsealed(Exception):
    """The template cannot be sealed; the text says why. No call is run from it."""


def check(machine: tracing.Machine, pid: int, proc: int) -> None:
    """Raise `Unsealed` unless a fork shares nothing writable with it, and it can execute only that fork."""
    state = status(pid, proc)
    mappings = list(_mappings(pid, proc))
    end = tracing.Registers(machine, pid).counter
    fork = range(end - len(machine.instruction), end)
    facts = {
        "threads": (state["Threads"], "1"),
        # These three it was given before its import, by code of ours, and cannot lose: a mistake there would
        # show here.
        "capabilities": ({state[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")}, {NOTHING}),
        "filter": (state["Seccomp"], "2"),
        "new privileges": (state["NoNewPrivs"], "1"),
        "pending signals": ({state["SigPnd"], state["ShdPnd"]}, {NOTHING}),
        # And timers. They are counted for the user: held for ever, they would be missing elsewhere.
        "queued signals": (state["SigQ"].partition("/")[0], "0"),
        # Mounts that a worker's own ones cover can still be reached from inside.
        "a working folder": (_place(pid, proc, "cwd"), _place(pid, proc, "root")),
        "open files": (_open_files(pid, proc), []),
        # Also what may become writable (mw), which `maps` would not tell.
        "shared memory": ([area for area, flags in mappings if flags >= {"sh", "mw"}], []),
        # When it resumes, the kernel would lead it to the code that a sequence names; its workers, too,
        # before they are confined.
        "a restartable sequence": (tracing.rseq_area(pid), 0),
        # The same where the instruction of the fork is overwritten (clone writes a thread id where it is told
        # to), wiped in a fork, or in two mappings of which one is.
        "a fork in writable memory": (
            [flags & {"wr", "wf"} for area, flags in mappings if fork[0] in area and fork[-1] in area],
            [set()],
        ),
    }
    wrong = [name for name, (found, wanted) in facts.items() if found != wanted]
    if wrong:
        raise Unsealed(f"after its import it has {', '.join(wrong)} that its workers would share")
    # The same where it is mapped from a file that a worker may write, as at `standard`.
    tracing.rewrite_instruction(machine, pid, end)


def status(pid: int, proc: int) -> dict[str, str]:
    """/proc/PID/status. The kernel escapes line ends in the name of a process."""
    file = os.open(f"{pid}/status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        # Not `splitlines`: the kernel escapes no other line ends than this one.
        lines = os.read(file, _STATUS_BYTES).decode().split("\n")
    finally:
        os.close(file)
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _place(pid: int, proc: int, name: str) -> tuple[int, int]:
    found = os.stat(f"{pid}/{name}", dir_fd=proc)
    return found.st_dev, found.st_ino


def _open_files(pid: int, proc: int) -> list[str]:
    folder = os.open(f"{pid}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
    try:
        return os.listdir(folder)
    finally:
        os.close(folder)


def _mappings(pid: int, proc: int) -> Iterator[tuple[range, set[str]]]:
    """Its memory, with the kernel's flags for each part of it."""
    area = range(0)
    with _opened(f"{pid}/smaps", proc) as lines:
        for line in lines:
            name, _, rest = line.partition(":")
            first, dash, end = name.partition(" ")[0].partition("-")
            if name == "VmFlags":
                yield area, set(rest.split())
            elif dash:
                area = range(int(first, 16), int(end, 16))


def _opened(path: str, proc: int) -> TextIO:
    return open(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc), encoding="utf-8")
