"""Canonical JSON (RFC 8785) and its SHA-256: the same value gives the same bytes everywhere.

Integers beyond 2^53 - 1, which RFC 8785 leaves out, keep their exact digits (EXE-3).
"""

import hashlib
import math
from collections.abc import Iterable
from typing import Any, Literal

import orjson

_SAFE_INTEGER = 2**53 - 1
_SIMPLE = frozenset({str, bool, type(None)})
_LEAST, _SMALL, _LARGE = 1e-6, 1e-5, 1e21
"""ECMAScript writes no exponent from the first to the last. orjson writes fractions alike, but those between
the first two; whole numbers it writes otherwise below the last."""

_Form = Literal["plain", "numbers", "other"]
"""What keeps orjson's form of a value from being canonical: nothing, some of its numbers, or more."""


def canonical_bytes(value: Any) -> bytes:
    """The canonical form of a JSON value."""
    # orjson with sorted keys is the canonical form as long as there is no number that it writes otherwise and
    # no key outside ASCII (it sorts by UTF-8, RFC 8785 by UTF-16); 33 × faster than writing it here.
    try:
        written = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # no JSON, too deep, or an integer beyond 64 bits
        return _write(value).encode()
    if type(value) in _SIMPLE:
        return written
    # Text is written as it is: where all of it is ASCII, the keys are.
    form = _form(value, has_ascii_keys=written.isascii())
    if form == "plain":
        return written
    if form == "numbers":  # a tool may answer with a million of them: a sixth of the time
        return orjson.dumps(_with_numbers(value), option=orjson.OPT_SORT_KEYS)
    return _write(value).encode()


def canonical_hash(value: Any) -> str:
    """SHA-256 of the canonical form, in hex."""
    return hashlib.sha256(canonical_bytes(value)).hexdigest()


def _form(value: Any, *, has_ascii_keys: bool) -> _Form:
    """Whether orjson's form of a value, which it could write and which therefore ends, is canonical."""
    # By exact type, and without a call for each value: 4 × faster than asking each what it is.
    form: _Form = "plain"
    waiting: list[Any] = [value]
    for item in waiting:
        kind = type(item)
        if kind is float:
            if form == "plain" and not _is_alike(item):
                form = "numbers"
        elif isinstance(item, dict):  # frozen ones too
            if not (has_ascii_keys or _are_ascii(item)):
                return "other"
            waiting += [inside for inside in item.values() if type(inside) not in _WRITTEN_ALIKE]
        elif isinstance(item, list):
            waiting += [inside for inside in item if type(inside) not in _WRITTEN_ALIKE]
        elif kind not in _WRITTEN_ALIKE:
            return "other"
    return form


_WRITTEN_ALIKE = _SIMPLE | {int}


def _is_alike(number: float) -> bool:
    """Whether orjson writes a number as ECMAScript does; it writes `null` for what is none."""
    size = abs(number)
    if size >= _LARGE:
        return size < math.inf
    return 0 < size < _LEAST or (size >= _SMALL and not number.is_integer())


def _with_numbers(value: Any) -> Any:
    """A copy in which orjson writes the numbers as ECMAScript does; everything else is shared."""
    if isinstance(value, dict):
        return {
            key: inside if type(inside) in _WRITTEN_ALIKE else _with_numbers(inside)
            for key, inside in value.items()
        }
    if isinstance(value, list):
        return [inside if type(inside) in _WRITTEN_ALIKE else _with_numbers(inside) for inside in value]
    if value.is_integer() and -_SAFE_INTEGER <= value <= _SAFE_INTEGER:
        return int(value)
    return value if _is_alike(value) else orjson.Fragment(_fraction(value))


def _are_ascii(keys: Iterable[Any]) -> bool:
    try:
        return "".join(keys).isascii()
    except TypeError:
        return False


def _write(value: Any) -> str:
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("an object key is not text")
        members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be"))
        return "{" + ",".join(f"{_text(key)}:{_write(item)}" for key, item in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_write, value)) + "]"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return _fraction(value)
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, int):
        return int.__repr__(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _fraction(number: float) -> str:
    """A number as ECMAScript writes it (Number::toString); the digits are the shortest, as Python's are."""
    if not math.isfinite(number):
        raise ValueError(f"{number} is not representable in JSON")
    if _is_alike(number):
        return orjson.dumps(number).decode()
    if number.is_integer() and abs(number) <= _SAFE_INTEGER:
        return int.__repr__(int(number))
    sign = "-" if number < 0 else ""
    digits, _, exponent = float.__repr__(abs(number)).removesuffix(".0").partition("e")
    whole, _, rest = digits.partition(".")
    if int(exponent or 0) < 0:
        return f"{sign}0.{'0' * (-int(exponent) - 1)}{whole}{rest}"
    return f"{sign}{whole}{rest.ljust(int(exponent or 0), '0')}"


_WORDS: dict[bool | None, str] = {None: "null", True: "true", False: "false"}


def _text(text: str) -> str:
    return orjson.dumps(text).decode()
