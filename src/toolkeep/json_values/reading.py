"""Reads JSON of any numbers quickly: msgspec takes 11 µs for each one beyond 1e288 or below 1e-307."""

from functools import partial
from typing import Any, Final

import jiter
import msgspec
import orjson

_read: Final = msgspec.json.Decoder().decode
_read_exactly: Final = partial(jiter.from_json, allow_inf_nan=False, cache_mode="keys")
_FEW: Final = 500
"""Numbers with three digits of exponent that may cost as much: some 6 ms."""
_SMALL: Final = _FEW * len("1e300,")
"""Bytes that hold no more of them."""
_PORTION_BYTES: Final = 1 << 20
"""Bytes that are looked at in one turn: 100 MB would hold the interpreter lock for 0.15 s."""
_OUTLINE: Final = bytes.maketrans(b"123456789E", b"000000000e")


def read_canonical(body: bytes) -> Any:
    """The value of canonical JSON; raises `ValueError` for what is nested 200 levels deep."""
    return _read(body) if len(body) <= _SMALL else _read_exactly(body)


def read_strict(body: bytes | bytearray | memoryview) -> Any:
    """The value of JSON that somebody else wrote; raises `ValueError` or `RecursionError`.

    Where much of it may be such exponents, it also raises for an integer of 309 digits or 200 nested lists.
    """
    if not _has_many_exponents(body):
        return _read(body)
    # orjson refuses numbers beyond a float, but rounds integers beyond 64 bits; jiter is the opposite.
    orjson.loads(body)
    return _read_exactly(bytes(body))


def _has_many_exponents(body: bytes | bytearray | memoryview) -> bool:
    if len(body) <= _SMALL:
        return False
    found, view = 0, memoryview(body)
    for start in range(0, len(view), _PORTION_BYTES):
        portion = bytes(view[start : start + _PORTION_BYTES])
        found += portion.translate(_OUTLINE, b"+-").count(b"0e000")
        if found > _FEW:
            return True
    return False
