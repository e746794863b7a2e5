"""The arguments of a call as Cedar sees them.

In come arguments that satisfy the tool's schema; out goes a record that satisfies its Cedar schema. Files,
hosts and databases appear in canonical form, commands as they were written. What Cedar cannot hold is left
out, and its place is told: a policy that reads such a place cannot judge the call.
"""

import re
import shlex
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

from toolkeep.pointers import pointer
from toolkeep.policy.cedar_schema import LONGS, Kind, Shape, cedar_schema, is_unicode, read_shape

Path = tuple[str, ...]
"""A place in the arguments; an item of an array by its index in decimal."""

VALUES: Final = 5_000
"""Values in the arguments that policies read. Cedar takes up to 0.1 ms for each, and
nothing else runs meanwhile."""

_FRACTION: Final = 4
_DECIMALS: Final = (Decimal(LONGS[0]).scaleb(-_FRACTION), Decimal(LONGS[1]).scaleb(-_FRACTION))
"""What Cedar's decimal can hold: 64 bits, of which four digits are behind the point."""


_SHORT: Final = re.compile(r"-?[0-9]{1,14}\.[0-9]{1,4}")


class _Lost(Exception):
    """Cedar cannot hold the value."""


class ArgumentShape:
    """Made once a tool; turns the arguments of each call into a record."""

    def __init__(self, parameters: Mapping[str, Any], only: AbstractSet[str] | None = None) -> None:
        """`only` names the arguments that matter; all do where it is None."""
        shape = read_shape(parameters)
        self.shape: Shape = shape if only is None else shape.only(only)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The Cedar schema of the tool as JSON."""
        return cedar_schema(self.shape)

    def record(
        self, arguments: Mapping[str, Any], canonical: Mapping[str, str], lost: list[Path] | None = None
    ) -> dict[str, Any]:
        """Arguments that are read as a Cedar record in JSON; `lost` collects the places that are left out.

        `canonical` holds the canonical form of what is touched, by JSON Pointer.
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
            except _Lost:
                lost.append(place)
    return record


def _is_large(arguments: Mapping[str, Any]) -> bool:
    """Whether arguments hold more values than Cedar can be asked about, all of them together."""
    count, waiting = 0, list(arguments.values())
    while waiting and count <= VALUES:
        here = waiting.pop()
        count += 1
        if isinstance(here, (dict, list)):
            waiting.extend(here.values() if isinstance(here, dict) else here)
    return count > VALUES


def _value(shape: Shape, value: Any, path: Path, canonical: Mapping[str, str], lost: list[Path]) -> Any:
    # Types are compared exactly: True is an int in Python, and no Long in Cedar.
    kind, given = shape.kind, type(value)
    if kind is Kind.TEXT and given is str:
        return _text(canonical.get(pointer(path)) if shape.is_touched else value)
    if shape.is_command and isinstance(value, list) and all(type(word) is str for word in value):
        return _text(shlex.join(value))  # quoted, so that no two lists of words give the same text
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
    raise _Lost


def _text(text: str | None) -> str:
    if text is None or not is_unicode(text):
        raise _Lost
    return text


def _set(element: Shape, items: list[Any], path: Path, canonical: Mapping[str, str]) -> list[Any]:
    """Whole or not at all: a policy that asks `containsAll` must not be shown a part."""
    lost: list[Path] = []
    members = [_value(element, item, (*path, str(i)), canonical, lost) for i, item in enumerate(items)]
    if lost:
        raise _Lost
    return members


def _decimal(value: float) -> str:
    """The number as Cedar writes it; what a person would have to round is lost."""
    if type(value) is int:
        if not _DECIMALS[0] <= value <= _DECIMALS[1]:
            raise _Lost
        return f"{value}.0"
    text = repr(value)
    if _SHORT.fullmatch(text):  # most numbers; 2 × faster than to work with decimals
        return text
    exact = Decimal(text)
    exponent = exact.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -_FRACTION or not _DECIMALS[0] <= exact <= _DECIMALS[1]:
        raise _Lost
    text = f"{exact:f}"
    return text if "." in text else f"{text}.0"
