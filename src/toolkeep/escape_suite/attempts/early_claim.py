"""Claims at import that it is over, and forks as toolkeep's own code would: it then is every worker."""

import contextlib
import os
import time

from .declare import WORKER_PIDS, attempt, is_inside
from .system import EARLY_MARK, libc, raw, take_name

_IMPORTED = 0x5EA1
"""What a template says to its fork server (`sandbox/guest/template.py`)."""


@attempt("tree-kill", "left", calls=2)
def take_the_place_of_the_worker(early_mark: str) -> str:
    return "answered"


def _be_the_worker() -> None:
    take_name(EARLY_MARK)
    body = b'{"ok":"early"}'
    # Descriptor 1 of a worker that toolkeep's code has not touched yet; 4 of a control.
    for reply in (4, 1):
        with contextlib.suppress(OSError):
            os.write(reply, len(body).to_bytes(4, "big") + body)
            break
    while True:
        time.sleep(60)


if is_inside(__name__):
    if os.getpid() in WORKER_PIDS:
        os.closerange(0, 3)  # As a template does, which could not be sealed otherwise.
    with contextlib.suppress(OSError):
        raw("capset", _IMPORTED, 0)
    with contextlib.suppress(OSError):
        for _ in range(2):
            # Without Python's preparations for a child.
            _child = libc.fork()
            if _child < 0:
                raise OSError("fork")
            if _child:
                os._exit(1)
        _be_the_worker()
