"""How large a call is, in everything that costs the engine work."""

import math
from typing import Any, NamedTuple

from toolkeep.limits import MATCHED_CHARS

_WIDE_BITS = 53
_BITS_PER_DIGIT = 3


class Size(NamedTuple):
    """How large a call is, in what costs work."""

    values: int
    """JSON values; the names of properties count too."""
    chars: int = 0
    """Characters that patterns could be tried on."""
    wide_integers: int = 0
    """Integers beyond 2^53, which the engine cannot tell apart by their hash."""
    wide_digits: int = 0
    """Their digits."""
    is_finite: bool = True
    """Whether every number is."""


def size_of(value: Any, *, stop_at: float = math.inf) -> Size:
    """What a call holds that costs work; counting ends once there are more than `stop_at` values."""
    values = chars = wide = digits = 0
    is_finite = True
    stack = [value]
    while stack and values <= stop_at:
        here = stack.pop()
        values += 1
        kind = here.__class__
        if kind is str:
            chars += min(len(here), MATCHED_CHARS)
        elif kind is dict:
            values += len(here)
            chars += sum(map(len, here))
            stack.extend(here.values())
        elif kind is list:
            stack.extend(here)
        elif kind is int and here.bit_length() > _WIDE_BITS:
            wide += 1
            digits += here.bit_length() // _BITS_PER_DIGIT
        elif kind is float and here - here != 0:
            is_finite = False
    return Size(values, chars, wide, digits, is_finite)
