"""Runs at import and goes on, in child processes where it may fork, also in one that no tracer follows."""

import contextlib
import os
import time

from .declare import attempt, is_inside
from .system import CLONE_UNTRACED, EARLY_MARK, SIGCHLD, raw, take_name


@attempt("tree-kill", "left", calls=2)
def run_between_calls(early_mark: str) -> str:
    """An idle worker with the tool imported, which runs until the next call, would carry its name."""
    return "answered"


def _untraced() -> int:
    return raw("clone", CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0)


if is_inside(__name__):
    take_name(EARLY_MARK)
    for _start in (os.fork, _untraced):
        with contextlib.suppress(OSError):
            if _start() == 0:
                time.sleep(60)
                os._exit(0)
