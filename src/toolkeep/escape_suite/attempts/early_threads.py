"""Starts threads at import, as many as it gets."""

import contextlib
import threading

from .declare import attempt, is_inside

_MANY = 40
"""More than twice of what a call is granted (`baits.py`)."""


@attempt("bounded", "more")
def start_threads_at_import(more_processes: int) -> int:
    return _made


_made = 0
if is_inside(__name__):
    threading.stack_size(256 * 1024)
    _halt = threading.Event()
    with contextlib.suppress(RuntimeError):
        while _made < _MANY:
            threading.Thread(target=_halt.wait, daemon=True).start()
            _made += 1
    _halt.set()
