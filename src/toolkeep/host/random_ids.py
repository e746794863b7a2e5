"""Random ids from the system's CSPRNG, drawn in bulk.

Each system call releases the GIL: with the log writer busy, getting it back took a tenth of a call.
"""

import os
import secrets
from typing import Final

DIGITS: Final = 48
"""Hexadecimal digits of one id: 192 bits."""

_DRAWN_AT_ONCE: Final = 128
_pool: list[str] = []
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_pool.clear)  # else parent and child would use the same ids


def random_digits() -> str:
    """The next unused random digits; `list.pop` is atomic, so threads need no lock."""
    while True:
        try:
            return _pool.pop()
        except IndexError:
            digits = secrets.token_hex(DIGITS // 2 * _DRAWN_AT_ONCE)
            _pool.extend(digits[start : start + DIGITS] for start in range(0, len(digits), DIGITS))
