"""Converts a tool's return value to JSON data, by the same rules as for in-process tools.

Models and dataclasses become objects, tuples arrays, dates and ids strings. Types without an obvious JSON
form (sets, generators) are refused instead of guessed.
"""

import dataclasses
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

_DEEPEST: Final = 150
"""Maximum nesting of a value; the same as the host's `OUTPUT_DEPTH`, which cannot be imported here."""
_SCALARS: Final = frozenset((str, int, float, bool))
_TEXTS: Final = (date, time, Decimal, PurePath, UUID)


def plain(value: Any, depth: int = 0) -> Any:
    """The value as JSON data."""
    # A cyclic value would recurse until the interpreter crashes.
    if depth > _DEEPEST:
        raise ValueError("nested too deep")
    if value is None or type(value) in _SCALARS:
        return value
    if isinstance(value, Enum):
        return plain(value.value, depth)
    if isinstance(value, (str, int, float)):
        return next(kind(value) for kind in (str, int, float) if isinstance(value, kind))
    if isinstance(value, Mapping):
        return {_key(key): plain(inside, depth + 1) for key, inside in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inside, depth + 1) for inside in value]
    if hasattr(value, "model_dump"):
        if _has_set(value.model_dump()):
            raise TypeError("a set has no order")
        return plain(value.model_dump(mode="json"), depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), depth + 1) for f in dataclasses.fields(value)}
    if isinstance(value, _TEXTS):
        return _text(value)
    if isinstance(value, timedelta):
        raise TypeError("a duration has no one form as text; give seconds")
    raise TypeError(f"{type(value).__name__} is not JSON")


def _text(value: date | time | Decimal | PurePath | UUID) -> str:
    if isinstance(value, (date, time)):
        text = value.isoformat()
        return f"{text[:-6]}Z" if text.endswith("+00:00") else text
    return str(value)


def _has_set(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_set, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_set, value))
    return isinstance(value, (set, frozenset))


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError("an object key is not text")
    return str(key)
