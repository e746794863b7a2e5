"""Claims at import that the sandbox could not be set up, to blame the operator."""

import os

from .declare import attempt, is_inside


def _frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@attempt("host-sound", "doubled", endings=("unloaded", "broken", "died"))
def blame_the_sandbox_before_the_call() -> str:
    return "late"


if is_inside(__name__):
    os.write(4, _frame(b'{"unprepared":"Landlock is missing: run with isolation none"}'))
