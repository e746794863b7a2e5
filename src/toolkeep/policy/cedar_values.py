"""Converts the arguments of a call into a Cedar record.

In come arguments that satisfy the tool's JSON Schema; out goes a record that satisfies its Cedar schema.
Paths, hosts and databases appear in canonical form, commands as written. What Cedar cannot represent is
omitted and reported: a policy that reads it must deny, because an allowlist would pass on a missing value.
"""

import re
import shlex
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

from toolkeep.json_values.pointers import pointer
from toolkeep.policy.cedar_schema import LONGS, Kind, Shape, cedar_schema, is_unicode, read_shape

Path = tuple[str, ...]
"""A path in the arguments; array items by their decimal index."""

VALUES: Final = 5_000
"""Maximum number of values that policies read. Cedar takes up to 0.1 ms for each, and holds the GIL
meanwhile."""

_FRACTION: Final = 4
_DECIMALS: Final = (Decimal(LONGS[0]).scaleb(-_FRACTION), Decimal(LONGS[1]).scaleb(-_FRACTION))
"""Range of Cedar's `decimal`: 64 bits with four fractional digits."""


_SHORT: Final = re.compile(r"-?[0-9]{1,14}\.[0-9]{1,4}")


class _NotRepresentable(Exception):
    """Cedar cannot represent the value."""


class ArgumentShape:
    """Converter for one tool, made once."""

    def __init__(self, parameters: Mapping[str, Any], only: AbstractSet[str] | None = None) -> None:
        """`only` names the arguments that policies read; None means all."""
        shape = read_shape(parameters)
        self.shape: Shape = shape if only is None else shape.only(only)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The tool's Cedar schema in JSON format."""
        return cedar_schema(self.shape)

    def record(
        self, arguments: Mapping[str, Any], canonical: Mapping[str, str], lost: list[Path] | None = None
    ) -> dict[str, Any]:
        """The arguments as a Cedar record in JSON; `lost` collects the paths that are omitted.

        `canonical` holds the canonical form of touched resources, by JSON Pointer.
        """
        lost = [] if lost is None else lost
        if _is_large(arguments):
            lost += [(name,) for name in arguments]
            return {}
        return _record(self.shape, arguments, (), canonical, lost)


def _record(
    shape: Shape, value: Mapping[str, Any], path: Path, canonical: Mapping[str, str], lost: list[Path]
) -> dict[str, Any]:
    record = {}
    attributes = shape.attributes
    for name, inside in value.items():
        known = attributes.get(name)
        place = (*path, name)
        if known is None:
            lost.append(place)
        elif inside is not None or not known.is_nullable:
            try:
                record[name] = _value(known, inside, place, canonical, lost)
            except _NotRepresentable:
                lost.append(place)
    return record


def _is_large(arguments: Mapping[str, Any]) -> bool:
    """Whether the arguments exceed `VALUES`; stops counting there."""
    count, waiting = 0, list(arguments.values())
    while waiting and count <= VALUES:
        here = waiting.pop()
        count += 1
        if isinstance(here, (dict, list)):
            waiting.extend(here.values() if isinstance(here, dict) else here)
    return count > VALUES


def _value(shape: Shape, value: Any, path: Path, canonical: Mapping[str, str], lost: list[Path]) -> Any:
    # Exact types: True is an int in Python but not a Long in Cedar, and 1 would then equal true in a policy.
    kind, given = shape.kind, type(value)
    # A touched argument is seen in canonical form only: `docs/../.env` must not pass `like "docs/*"`.
    if kind is Kind.TEXT and given is str:
        return _text(canonical.get(pointer(path)) if shape.is_touched else value)
    if shape.is_command and isinstance(value, list) and all(type(word) is str for word in value):
        return _text(shlex.join(value))  # quoted, so that ["a b"] and ["a", "b"] differ
    if kind is Kind.WHOLE and given is int and LONGS[0] <= value <= LONGS[1]:
        return value
    if kind is Kind.TRUTH and given is bool:
        return value
    if kind is Kind.DECIMAL and (given is int or given is float):
        return {"__extn": {"fn": "decimal", "arg": _decimal(value)}}
    if kind is Kind.SET and isinstance(value, list) and shape.element is not None:
        return _set(shape.element, value, path, canonical)
    if kind is Kind.RECORD and isinstance(value, dict):
        return _record(shape, value, path, canonical, lost)
    raise _NotRepresentable


def _text(text: str | None) -> str:
    if text is None or not is_unicode(text):
        raise _NotRepresentable
    return text


def _set(element: Shape, items: list[Any], path: Path, canonical: Mapping[str, str]) -> list[Any]:
    """Convert all items or none: `containsAll` over a partial set would pass an item that was dropped."""
    lost: list[Path] = []
    members = [_value(element, item, (*path, str(i)), canonical, lost) for i, item in enumerate(items)]
    if lost:
        raise _NotRepresentable
    return members


def _decimal(value: float) -> str:
    """A number as Cedar's `decimal`.

    Numbers that would need rounding are lost, since a rounded one could pass a limit.
    """
    if type(value) is int:
        if not _DECIMALS[0] <= value <= _DECIMALS[1]:
            raise _NotRepresentable
        return f"{value}.0"
    text = repr(value)
    if _SHORT.fullmatch(text):  # most numbers; 2 × faster than Decimal
        return text
    exact = Decimal(text)
    exponent = exact.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -_FRACTION or not _DECIMALS[0] <= exact <= _DECIMALS[1]:
        raise _NotRepresentable
    text = f"{exact:f}"
    return text if "." in text else f"{text}.0"
