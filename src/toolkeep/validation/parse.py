"""Strict JSON: bytes or Python data in, a fresh JSON value out, or `NotStrictJson` with the reason.

Duplicate keys, NaN, Infinity, numbers too large for a float, lone surrogates and anything that is not
JSON are refused. What comes out shares nothing with what came in, so that nobody changes it later.
"""

from typing import Any, Final, NamedTuple

import jiter

from toolkeep.errors import Code
from toolkeep.validation.diagnose import why_not_json
from toolkeep.validation.reasons import (
    NotStrictJson,
    infinite_number,
    too_deep,
    too_many_containers,
    too_many_digits,
)
from toolkeep.validation.size import Size, size_of

_SHAPE = bytes(
    ord("0") if chr(i).isdecimal() and i < 128 else ord("e") if i == ord("E") else i for i in range(256)
)


_MANY_DIGITS = b"0" * 200
_LONG = b"0" * 16


class Misfit(NamedTuple):
    """A JSON value that the schema does not accept."""

    value: Any
    size: Size | None = None
    """Where it was counted already."""


Objection = NotStrictJson | Misfit
"""Why a call is refused: it cannot be read, or what it says does not fit."""


def parse_json(raw: bytes) -> Any:
    """Strict JSON from bytes. A number beyond the range of a float comes out as inf: see `may_overflow`."""
    try:
        return jiter.from_json(raw, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        raise why_not_json(raw) from None


def as_bytes(text: object) -> bytes:
    """JSON text in any of its Python forms, as bytes; empty where there is none."""
    if type(text) is str:
        return text.encode("utf-8", "surrogatepass")
    try:
        return bytes(text) if type(text) in (bytes, bytearray, memoryview) else b""  # type: ignore[call-overload]  # looked at
    except ValueError:  # a memoryview that was released
        return b""


def parse_json_fully(raw: bytes, *, depth: int) -> Any:
    """Strict JSON from bytes, every number finite and nothing nested deeper than `depth`."""
    value = parse_json(raw)
    check_numbers_and_depth(size_of(value), depth)
    return value


def check_numbers_and_depth(size: Size, depth: int) -> None:
    """Raise where a number is beyond a float, or containers are nested deeper than `depth`."""
    if not size.is_finite:
        raise infinite_number()
    if size.depth > depth:
        raise too_deep(depth)


def may_overflow(raw: bytes) -> bool:
    """Whether the text could hold a finite-looking number that a float cannot: an exponent of three digits
    after a digit, or two hundred digits in a row."""
    shape = raw.translate(_SHAPE)
    return b"0e000" in shape or b"0e+000" in shape or _MANY_DIGITS in shape


def may_hold_long_numbers(raw: bytes) -> bool:
    """Whether the text could hold a number beyond a float, or an integer beyond 2^53."""
    shape = raw.translate(_SHAPE)
    return _LONG in shape or b"0e000" in shape or b"0e+000" in shape


_INTEGER_BITS: Final = 14_000
"""The integers that the parser takes too: 4,300 digits."""

_SCALARS: Final = frozenset((str, int, float, bool, type(None)))


class Snapshot:
    """A fresh copy of Python data that is JSON already, with its size in values and characters.

    Only exact dict (with text keys), list, str, int, float, bool and None count: a subclass could answer
    differently each time it is read.
    """

    def __init__(self, value: object, *, depth: int, values: int, containers: int | None = None) -> None:
        self.values = 0
        self.chars = 0
        self._containers = 0
        self._max_values = values
        self._max_containers = values if containers is None else containers
        self._max_depth = depth
        self.value = self._copy(value, "", 0)

    def _copy(self, value: Any, path: str, depth: int) -> Any:
        self.values += 1
        kind = type(value)
        if kind is dict or kind is list:
            self._enter(len(value), depth)
            if kind is list:
                return [self._copy(item, f"{path}/{i}", depth + 1) for i, item in enumerate(value)]
            return {self._key(key, path): self._copy(value[key], f"{path}/{key}", depth + 1) for key in value}
        if kind is str:
            return self._text(value, path)
        if kind is float and value - value != 0:
            raise NotStrictJson("NaN and Infinity are not JSON", "send a finite number", path=path)
        if kind is int and value.bit_length() > _INTEGER_BITS:
            raise too_many_digits(path)
        if kind not in _SCALARS:
            raise NotStrictJson(
                f"a Python {kind.__name__[:40]} is not JSON", "send plain dicts, lists and scalars", path=path
            )
        return value

    def _enter(self, length: int, depth: int) -> None:
        """Count one more object or array before looking into it."""
        if depth == self._max_depth:
            raise too_deep(self._max_depth)
        self._containers += 1
        if self._containers > self._max_containers:
            raise too_many_containers(self._max_containers)
        if self.values + length > self._max_values:
            raise NotStrictJson(
                f"arguments hold more than {self._max_values} values",
                "send less data",
                code=Code.ARGUMENTS_TOO_BIG,
            )

    def _text(self, text: str, path: str) -> str:
        self.chars += len(text)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise NotStrictJson("text holds a lone surrogate", "send valid Unicode", path=path) from None
        return text

    def _key(self, key: object, path: str) -> str:
        if type(key) is not str:
            raise NotStrictJson("an object key is not text", "use text keys", path=path)
        return self._text(key, path)
