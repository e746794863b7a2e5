"""What a tool gives back, as JSON data: models as objects, dates and ids as text, nothing guessed at.

`toolkeep.inside.plain` does the same in a worker, which does not have this package.
"""

import dataclasses
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from toolkeep.canonical import canonical_bytes
from toolkeep.limits import OUTPUT_CAP_BYTES, OUTPUT_DEPTH, OUTPUT_VALUES


class NotData(Exception):
    """A value holds something that JSON has no word for; the text says what, and shows no value."""


class TooMuch(Exception):
    """A value is larger than any output may be; the text says how large that is."""


def json_body(value: Any) -> bytes:
    """A value as canonical JSON; raises `NotData` or `TooMuch`."""
    try:
        data = _Reading().plain(value)
    except (NotData, TooMuch):
        raise
    except Exception as error:  # the value's own code is run, which may raise anything
        raise NotData(f"it raised {type(error).__name__} when it was read") from error
    try:
        body = canonical_bytes(data)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise NotData("a number or a text that JSON cannot hold") from error
    if len(body) > OUTPUT_CAP_BYTES:
        raise TooMuch(f"{OUTPUT_CAP_BYTES} bytes")
    return body


class _Reading:
    """Reads one value, and counts what it finds: parts that a value shares are written out once each time."""

    __slots__ = ("_chars", "_values")

    def __init__(self) -> None:
        self._values = 0
        self._chars = 0

    def plain(self, value: Any, depth: int = 0) -> Any:
        """JSON data: models and dataclasses as objects, tuples as arrays, dates, ids and the like as text.

        What JSON has no word for (sets, bytes, generators) is refused, not guessed at.
        """
        self._values += 1
        if self._values > OUTPUT_VALUES:
            raise TooMuch(f"{OUTPUT_VALUES} values")
        if depth > OUTPUT_DEPTH:
            raise NotData(f"nested deeper than {OUTPUT_DEPTH} levels")
        # Exact types first: to ask whether a list is an Enum and a Mapping takes ten times as long.
        kind = type(value)
        if value is None or kind in _NUMBERS:
            return value
        if kind is str:
            return self._text(value)
        if kind is list:
            return [self.plain(inside, depth + 1) for inside in value]
        if kind is dict:
            return {self._key(key): self.plain(inside, depth + 1) for key, inside in value.items()}
        return self._other(value, depth)

    def _other(self, value: Any, depth: int) -> Any:
        """What is neither a JSON type itself: what holds others, or stands for a text or number."""
        if isinstance(value, Enum):
            return self.plain(value.value, depth)
        if isinstance(value, str):
            return self._text(str(value))
        if isinstance(value, (int, float)):
            return int(value) if isinstance(value, int) else float(value)
        if isinstance(value, Mapping):
            return {self._key(key): self.plain(inside, depth + 1) for key, inside in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.plain(inside, depth + 1) for inside in value]
        if hasattr(value, "model_dump"):
            if _has_set(value.model_dump()):
                raise NotData("a set, which has no order")
            return self.plain(value.model_dump(mode="json"), depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.fields(value)
            return {field.name: self.plain(getattr(value, field.name), depth + 1) for field in fields}
        if isinstance(value, _TEXTS):
            from pydantic_core import to_jsonable_python

            return to_jsonable_python(value)
        raise NotData(f"an instance of {type(value).__name__}")

    def _text(self, text: str) -> str:
        self._chars += len(text)
        if self._chars > OUTPUT_CAP_BYTES:
            raise TooMuch(f"{OUTPUT_CAP_BYTES} bytes")
        return text

    def _key(self, key: object) -> str:
        if not isinstance(key, str):
            raise NotData("an object with a key that is not text")
        return self._text(str(key))


def _has_set(value: object) -> bool:
    """Whether a set would become an array: in an order that differs from run to run."""
    if isinstance(value, Mapping):
        return any(map(_has_set, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_set, value))
    return isinstance(value, (set, frozenset))


_NUMBERS = frozenset((int, float, bool))
_TEXTS = (date, time, timedelta, UUID, Decimal, PurePath)
