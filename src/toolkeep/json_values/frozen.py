"""Immutable JSON data for definitions.

Any JSON value comes in; a deep copy goes out, as `FrozenDict` and `FrozenList`. Both are subclasses of dict
and list, so every JSON and JSON Schema library reads them. A definition that could change after it was hashed
and accepted would void its pin.
"""

import re
from collections.abc import Iterator
from typing import Any, NoReturn, TypeAlias, cast

from toolkeep.errors import Code, ToolkeepError

JsonValue: TypeAlias = bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None
JsonObject: TypeAlias = dict[str, JsonValue]

_INTEGER_BITS = 14_000
"""Python converts no integer of more than 4,300 digits to text."""

MAX_DEPTH = 200
"""Maximum nesting; also stops at a structure that contains itself."""


class NotJson(ToolkeepError):
    """A value in a definition is not JSON data."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(Code.DEFINITION_INVALID, f"{path or '/'}: {reason}", hint="use JSON data only")
        self.path, self.reason = path, reason


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError(f"{type(self).__name__} cannot change; make a new definition with definition.replace(…)")


class FrozenDict(dict[str, JsonValue]):
    """An immutable JSON object."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # it cannot change
        return hash(frozenset(self))

    def __deepcopy__(self, _: object) -> "FrozenDict":
        return self

    def __reduce__(self) -> tuple[type, tuple[JsonObject]]:
        return (FrozenDict, (dict(self),))


class FrozenList(list[JsonValue]):
    """An immutable JSON array."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # it cannot change
        return hash(len(self))

    def __deepcopy__(self, _: object) -> "FrozenList":
        return self

    def __reduce__(self) -> tuple[type, tuple[list[JsonValue]]]:
        return (FrozenList, (list(self),))


def freeze(value: object, path: str = "") -> JsonValue:
    """Deep-copy JSON data into its frozen form; raises `NotJson` with the path of anything else."""
    # Fast path without error paths, for nearly all data: a fifth of the time.
    try:
        return cast("JsonValue", _freeze_plain(value, MAX_DEPTH))
    except _NotPlain:
        return _freeze(value, path, MAX_DEPTH)


def freeze_object(value: object, path: str = "") -> FrozenDict:
    """`freeze`, for a value that must be an object."""
    if not isinstance(value, dict):
        raise NotJson(path, f"expected an object, got {type(value).__name__}")
    return cast("FrozenDict", freeze(value, path))


def thaw(value: Any) -> Any:
    """A mutable deep copy in plain dicts and lists."""
    if isinstance(value, dict):
        return {key: item if item.__class__ in _SCALARS else thaw(item) for key, item in value.items()}
    if isinstance(value, list):
        return [item if item.__class__ in _SCALARS else thaw(item) for item in value]
    return value


_SCALARS = frozenset((str, int, float, bool, type(None)))


def objects_in(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside a JSON value, outermost first."""
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            yield here
            waiting.extend(here.values())
        elif isinstance(here, list):
            waiting.extend(here)


class _NotPlain(Exception):
    """A value that needs the slow path."""


def _freeze_plain(value: Any, depth: int) -> Any:
    """Freeze data of the exact types that a JSON parser returns; raises `_NotPlain` for anything else."""
    kind = value.__class__
    if kind is dict and depth:
        _refuse_odd_names(value)
        return FrozenDict(
            {
                key: item if item.__class__ is str and item.isascii() else _freeze_plain(item, depth - 1)
                for key, item in value.items()
            }
        )
    if kind is list and depth:
        return FrozenList(_freeze_plain(item, depth - 1) for item in value)
    if kind is str:
        is_plain = value.isascii() or not _SURROGATE.search(value)
    elif kind is int:
        is_plain = -_PLAIN_INTEGER < value < _PLAIN_INTEGER
    elif kind is float:
        is_plain = value - value == 0
    else:
        is_plain = kind in _PLAIN_KINDS
    if not is_plain:
        raise _NotPlain
    return value


_PLAIN_KINDS = frozenset((bool, type(None), FrozenDict, FrozenList))
_PLAIN_INTEGER = 2**64
_SURROGATE = re.compile("[\ud800-\udfff]")


def _refuse_odd_names(names: dict[Any, Any]) -> None:
    if not {*map(type, names)} <= {str}:
        raise _NotPlain
    together = "".join(names)
    if not together.isascii() and _SURROGATE.search(together):
        raise _NotPlain


def _freeze(value: object, path: str, depth: int) -> JsonValue:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (FrozenDict, FrozenList)):
        return value
    if isinstance(value, (str, int)):
        return _plain_scalar(value, path)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise NotJson(path, "NaN and Infinity are not JSON")
        return float(value)
    if depth == 0:
        raise NotJson(path, f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        return FrozenDict((_key(k, path), _freeze(v, f"{path}/{k}", depth - 1)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return FrozenList(_freeze(v, f"{path}/{i}", depth - 1) for i, v in enumerate(value))
    raise NotJson(path, f"{type(value).__name__} is not JSON")


def _plain_scalar(value: str | int, path: str) -> str | int:
    """Convert Enum members and other subclasses to the plain value."""
    if isinstance(value, int):
        if int(value).bit_length() > _INTEGER_BITS:
            raise NotJson(path, "a number has too many digits")
        return int(value)
    # A lone surrogate cannot be encoded as UTF-8, so the definition would have no hash.
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotJson(path, "text contains a lone surrogate") from None
    return str.__str__(value)


def _key(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise NotJson(path, f"object keys are strings, not {type(key).__name__}")
    return cast("str", _plain_scalar(key, path))
