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
from toolkeep.limits import OUTPUT_DEPTH


def json_body(value: Any) -> bytes:
    """A value as canonical JSON. Raises TypeError, ValueError, RecursionError or OverflowError."""
    return canonical_bytes(_plain(value))


def _plain(value: Any, depth: int = 0) -> Any:
    """JSON data: models and dataclasses as objects, tuples as arrays, dates, ids and the like as text.

    What JSON has no word for (sets, bytes, generators) is refused, not guessed at.
    """
    if depth > OUTPUT_DEPTH:
        raise ValueError("nested too deep")
    if value is None or type(value) in _SCALARS:
        return value
    if isinstance(value, Enum):
        return _plain(value.value, depth)
    if isinstance(value, (str, int, float)):
        return next(kind(value) for kind in (str, int, float) if isinstance(value, kind))
    if isinstance(value, Mapping):
        return {_key(key): _plain(inside, depth + 1) for key, inside in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inside, depth + 1) for inside in value]
    if hasattr(value, "model_dump"):
        if _has_set(value.model_dump()):
            raise TypeError("a set has no order")
        return _plain(value.model_dump(mode="json"), depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: _plain(getattr(value, field.name), depth + 1) for field in fields}
    if isinstance(value, _TEXTS):
        from pydantic_core import to_jsonable_python

        return to_jsonable_python(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _has_set(value: object) -> bool:
    """Whether a set would become an array: in an order that differs from run to run."""
    if isinstance(value, Mapping):
        return any(map(_has_set, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_set, value))
    return isinstance(value, (set, frozenset))


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError("an object key is not text")
    return str(key)


_SCALARS = frozenset((str, int, float, bool))
_TEXTS = (date, time, timedelta, UUID, Decimal, PurePath)
