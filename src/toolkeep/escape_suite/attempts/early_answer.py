"""Sends a reply at import, before any request."""

import os

from .declare import attempt, is_inside


def _frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@attempt("host-sound", "doubled", endings=("ok", "broken"))
def answer_before_the_call() -> str:
    return "late"


if is_inside(__name__):
    os.write(4, _frame(b'{"ready":true}') + _frame(b'{"ok":"early"}'))
