"""Makes a log in a folder of its own again and again, each time in a process that ends one step later.

A step is whatever changes the disk. Prints at how many steps a process ended. A program of its own: it forks,
and has no other thread.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolkeep.storage.log.audit_log import AuditLog

STEPS = ("fsync", "fdatasync", "mkdir", "rename", "link", "unlink", "pwrite", "write")
STOPPED = 9


def stop_before(step: int) -> None:
    """End this process right before it changes the disk for the n-th time."""
    taken = 0

    def stopping(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal taken
            taken += 1
            if taken > step:
                os._exit(STOPPED)
            return real(*args, **options)

        return call

    for name in STEPS:
        setattr(os, name, stopping(getattr(os, name)))


def is_stopped(folder: Path, step: int) -> bool:
    """Whether a process that makes a log and records something came to the step."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == STOPPED
    stop_before(step)
    with AuditLog(folder) as log:
        log.append({"event": "Test", "n": 0}).result()
    os._exit(0)


def main() -> None:
    folder = Path(sys.argv[1])
    step = 0
    while is_stopped(folder / f"{step}", step):
        step += 1
    print(step)


if __name__ == "__main__":
    main()
