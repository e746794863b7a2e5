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


class NotData(Exception):
    """A value holds something that JSON has no word for; the text says what, and shows no value."""


def json_body(value: Any) -> bytes:
    """A value as canonical JSON; raises `NotData`."""
    try:
        data = _plain(value)
    except NotData:
        raise
    except Exception as error:  # the value's own code is run, which may raise anything
        raise NotData(f"it raised {type(error).__name__} when it was read") from error
    try:
        return canonical_bytes(data)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise NotData("a number or a text that JSON cannot hold") from error


def _plain(value: Any, depth: int = 0) -> Any:
    """JSON data: models and dataclasses as objects, tuples as arrays, dates, ids and the like as text.

    What JSON has no word for (sets, bytes, generators) is refused, not guessed at.
    """
    if depth > OUTPUT_DEPTH:
        raise NotData(f"nested deeper than {OUTPUT_DEPTH} levels")
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
            raise NotData("a set, which has no order")
        return _plain(value.model_dump(mode="json"), depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: _plain(getattr(value, field.name), depth + 1) for field in fields}
    if isinstance(value, _TEXTS):
        from pydantic_core import to_jsonable_python

        return to_jsonable_python(value)
    raise NotData(f"an instance of {type(value).__name__}")


def _has_set(value: object) -> bool:
    """Whether a set would become an array: in an order that differs from run to run."""
    if isinstance(value, Mapping):
        return any(map(_has_set, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_set, value))
    return isinstance(value, (set, frozenset))


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise NotData("an object with a key that is not text")
    return str(key)


_SCALARS = frozenset((str, int, float, bool))
_TEXTS = (date, time, timedelta, UUID, Decimal, PurePath)
