"""Strict JSON: bytes or Python data in, a fresh JSON value out, or `NotStrictJson` with the reason.

Duplicate keys, NaN, Infinity, numbers too large for a float, lone surrogates and anything that is not
JSON are refused. What comes out shares nothing with what came in, so that nobody changes it later.
"""

import re
from typing import Any, Final, NamedTuple

import jiter

from toolkeep.errors import Code

_OVERFLOW_LIKELY = re.compile(rb"[0-9.][eE]\+?[0-9]{3}|[0-9]{200}")


class NotStrictJson(ValueError):
    """Why a text or a value is not acceptable JSON, in words that hold nothing of its content."""

    def __init__(self, reason: str, mend: str, *, path: str = "", code: Code = Code.NOT_JSON) -> None:
        super().__init__(reason)
        self.reason, self.mend, self.path, self.code = reason, mend, path, code


class Misfit(NamedTuple):
    """A JSON value that the schema does not accept."""

    value: Any


Objection = NotStrictJson | Misfit
"""Why a call is refused: it cannot be read, or what it says does not fit."""


def parse_json(raw: bytes) -> Any:
    """Strict JSON from bytes. A number beyond the range of a float comes out as inf: see `may_overflow`."""
    try:
        return jiter.from_json(raw, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        from toolkeep.validation.diagnose import why_not_json

        raise why_not_json(raw) from None


def parse_json_fully(raw: bytes, *, depth: int) -> Any:
    """Strict JSON from bytes, every number finite and nothing nested deeper than `depth`."""
    value = parse_json(raw)
    if may_overflow(raw) and has_infinity(value):
        raise infinite_number()
    check_depth(value, depth)
    return value


def may_overflow(raw: bytes) -> bool:
    """Whether the text could hold a finite-looking number that a float cannot (1e400)."""
    return _OVERFLOW_LIKELY.search(raw) is not None


def has_infinity(value: Any) -> bool:
    """Whether an infinite number is anywhere in the value."""
    if value.__class__ is float:
        return bool(value - value != 0)
    if value.__class__ is dict:
        return any(map(has_infinity, value.values()))
    return value.__class__ is list and any(map(has_infinity, value))


def infinite_number() -> NotStrictJson:
    """The reason for a number such as 1e400."""
    return NotStrictJson("a number is too large", "send a number between -1.8e308 and 1.8e308")


def too_many_digits(path: str = "") -> NotStrictJson:
    """The reason for an integer that is too long to be worked with."""
    return NotStrictJson("a number has too many digits", "send a shorter number, or text", path=path)


def too_deep(depth: int) -> NotStrictJson:
    """The reason for nesting beyond the limit."""
    return NotStrictJson(
        f"arguments are nested deeper than {depth}", "send flatter data", code=Code.ARGUMENTS_TOO_BIG
    )


def check_depth(value: Any, depth: int) -> None:
    """Raise when containers are nested deeper than `depth`."""
    level: list[Any] = [value]
    for _ in range(depth):
        level = [
            item
            for container in level
            if container.__class__ is dict or container.__class__ is list
            for item in (container.values() if container.__class__ is dict else container)
        ]
        if not level:
            return
    if any(item.__class__ is dict or item.__class__ is list for item in level):
        raise too_deep(depth)


_INTEGER_BITS: Final = 14_000
"""The integers that the parser takes too: 4,300 digits."""

_SCALARS: Final = frozenset((str, int, float, bool, type(None)))


class Snapshot:
    """A fresh copy of Python data that is JSON already, with its size in values and characters.

    Only exact dict (with text keys), list, str, int, float, bool and None count: a subclass could answer
    differently each time it is read.
    """

    def __init__(self, value: object, *, depth: int, nodes: int) -> None:
        self.nodes = 0
        self.chars = 0
        self._max_nodes = nodes
        self._max_depth = depth
        self.value = self._copy(value, "", 0)

    def _copy(self, value: Any, path: str, depth: int) -> Any:
        self.nodes += 1
        kind = value.__class__
        if kind is dict or kind is list:
            if depth == self._max_depth:
                raise too_deep(self._max_depth)
            if self.nodes + len(value) > self._max_nodes:
                raise NotStrictJson(
                    f"arguments hold more than {self._max_nodes} values",
                    "send less data",
                    code=Code.ARGUMENTS_TOO_BIG,
                )
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

    def _text(self, text: str, path: str) -> str:
        self.chars += len(text)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise NotStrictJson("text holds a lone surrogate", "send valid Unicode", path=path) from None
        return text

    def _key(self, key: object, path: str) -> str:
        if key.__class__ is not str:
            raise NotStrictJson("an object key is not text", "use text keys", path=path)
        return self._text(str(key), path)
