"""Sends frames without end at import."""

import contextlib
import os

from .declare import attempt, is_inside


def _frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@attempt("host-sound", "swamped", endings=("broken", "died"))
def talk_before_the_call() -> str:
    return "late"


if is_inside(__name__):
    with contextlib.suppress(OSError):
        while True:
            os.write(4, _frame(b'{"note":1}') * 1000)
