"""Runs at import and goes on, in a child process where it may fork."""

import contextlib
import os
import time

from .declare import attempt, is_inside
from .system import EARLY_MARK, take_name


@attempt("tree-kill", "left", calls=2)
def run_between_calls(early_mark: str) -> str:
    """An idle worker with the tool imported, which runs until the next call, would carry its name."""
    return "answered"


if is_inside(__name__):
    take_name(EARLY_MARK)
    with contextlib.suppress(OSError):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
