"""Runs as soon as it is imported, and goes on: as a process of its own where it may start one."""

import contextlib
import os
import time

from .declare import attempt, is_inside
from .system import EARLY_MARK, take_name


@attempt("tree-kill", "left", calls=2)
def run_between_calls(early_mark: str) -> str:
    """A worker that waits with the tool imported, for the next call with the same grant, has its name."""
    return "answered"


if is_inside(__name__):
    take_name(EARLY_MARK)
    with contextlib.suppress(OSError):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
