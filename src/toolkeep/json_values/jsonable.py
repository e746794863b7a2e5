"""Converts tool output to JSON data: models to objects, dates and UUIDs to strings, no guessing.

`toolkeep.sandbox.guest` has the same conversion for workers, which cannot import this package.
"""

import dataclasses
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.limits import OUTPUT_CAP_BYTES, OUTPUT_DEPTH, OUTPUT_VALUES


class NotData(Exception):
    """A value contains something that JSON cannot represent; the text names the type and shows no value."""


class TooMuch(Exception):
    """A value exceeds the output limits; the text names the limit."""


def to_json_body(value: Any) -> bytes:
    """Convert a value to canonical JSON (RFC 8785); raises `NotData` or `TooMuch`."""
    return to_json_data(value)[1]


def to_json_data(value: Any) -> tuple[Any, bytes]:
    """The same with the data that was written, which shares no object with the value."""
    try:
        data = _Reading().plain(value)
    except (NotData, TooMuch):
        raise
    except Exception as error:  # properties and model_dump run the tool's code, which may raise anything
        raise NotData(f"it raised {type(error).__name__} when it was read") from error
    try:
        body = canonical_bytes(data)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise NotData("a number or a text that JSON cannot hold") from error
    if len(body) > OUTPUT_CAP_BYTES:
        raise TooMuch(f"{OUTPUT_CAP_BYTES} bytes")
    return data, body


class _Reading:
    """Converts one value and counts its parts; shared parts count each time, because JSON repeats them."""

    __slots__ = ("_chars", "_values")

    def __init__(self) -> None:
        self._values = 0
        self._chars = 0

    def plain(self, value: Any, depth: int = 0) -> Any:
        """Convert to JSON data.

        Models and dataclasses to objects, tuples to arrays, dates, UUIDs and the like to strings.

        What JSON cannot represent (sets, bytes, generators) is refused, not guessed.
        """
        self._values += 1
        if self._values > OUTPUT_VALUES:
            raise TooMuch(f"{OUTPUT_VALUES} values")
        if depth > OUTPUT_DEPTH:
            raise NotData(f"nested deeper than {OUTPUT_DEPTH} levels")
        # Exact types first: isinstance checks against Enum and Mapping take ten times as long for a list.
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
        """Convert containers and scalars that are not exact JSON types."""
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
    """Whether it contains a set.

    As an array its order would differ from run to run, and so would the hash.
    """
    if isinstance(value, Mapping):
        return any(map(_has_set, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_set, value))
    return isinstance(value, (set, frozenset))


_NUMBERS = frozenset((int, float, bool))
_TEXTS = (date, time, timedelta, UUID, Decimal, PurePath)
