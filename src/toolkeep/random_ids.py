"""Random ids, drawn for many calls at once.

Each time the operating system is asked, another thread takes the interpreter: with the writer of the log busy
that took a tenth of a call.
"""

import os
import secrets
from typing import Final

DIGITS: Final = 48
"""Hexadecimal digits of one draw: 192 bits."""

_DRAWN_AT_ONCE: Final = 128
_pool: list[str] = []
os.register_at_fork(after_in_child=_pool.clear)  # a child would draw what its parent does


def random_digits() -> str:
    """Hexadecimal digits that nobody drew before."""
    while True:
        try:
            return _pool.pop()
        except IndexError:
            digits = secrets.token_hex(DIGITS // 2 * _DRAWN_AT_ONCE)
            _pool.extend(digits[start : start + DIGITS] for start in range(0, len(digits), DIGITS))
