"""Sends progress at import, before there is a call."""

import os

from .declare import attempt, is_inside


def _frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@attempt("host-sound", "doubled", endings=("broken",))
def tell_progress_before_the_call() -> str:
    return "late"


if is_inside(__name__):
    os.write(4, _frame(b'{"progress":[1,2,"early"]}'))
