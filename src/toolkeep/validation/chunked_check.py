"""Validate a large output in chunks, because the engine holds the GIL and all other calls wait meanwhile.

In: an output schema and a value that costs more than one engine call may take. An array whose schema
constrains each item on its own is checked a few items at a time, also inside a plain object. Anything else is
not split and counts as not checkable.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jsonschema_rs

CompilePart = Callable[[dict[str, Any]], jsonschema_rs.Validator]
Affords = Callable[[Any], bool]
"""Whether validating a value costs no more than one engine call may."""

_PLAIN_OBJECT = frozenset(
    ("type", "properties", "required", "additionalProperties", "minProperties", "maxProperties")
)
_PLAIN_ARRAY = frozenset(("type", "items", "minItems", "maxItems"))
_WORDS = frozenset(
    ("$defs", "$schema", "$comment", "title", "description", "default", "examples", "deprecated")
)


class TooExpensive(Exception):
    """Validating the value would cost too much in one engine call."""


def is_valid_in_chunks(
    schema: dict[str, Any], value: Any, *, compile_part: CompilePart, affords: Affords
) -> bool:
    """Whether a value fits its schema; raises `TooExpensive`."""
    rest, arrays = _taken_apart(schema, value)
    if not arrays:
        raise TooExpensive
    if not compile_part(rest).is_valid(value):  # the items are left out of this schema
        return False
    for items, array in arrays:
        check = compile_part({"type": "array", "items": items}).is_valid
        if not all(check(portion) for portion in _portions(array, affords)):
            return False
    return True


def _portions(array: list[Any], affords: Affords) -> Iterator[list[Any]]:
    """The items in chunks, each as large as one engine call may take."""
    waiting = [array]
    while waiting:
        portion = waiting.pop()
        if affords(portion):
            yield portion
        elif len(portion) == 1:
            raise TooExpensive
        else:
            half = len(portion) // 2
            waiting += [portion[half:], portion[:half]]


_Array = tuple[dict[str, Any], list[Any]]
"""The schema of the items, and the items."""


def _taken_apart(schema: dict[str, Any], value: Any) -> tuple[dict[str, Any], list[_Array]]:
    """The schema without the `items` of its arrays, and those arrays beside their item schemas."""
    if isinstance(value, list) and _says_only(schema, _PLAIN_ARRAY) and isinstance(schema.get("items"), dict):
        rest = {keyword: said for keyword, said in schema.items() if keyword != "items"}
        return rest, [(schema["items"], value)]
    if not isinstance(value, dict) or not _says_only(schema, _PLAIN_OBJECT):
        return schema, []
    arrays: list[_Array] = []
    properties: dict[str, Any] = {}
    for name, part in schema.get("properties", {}).items():
        inside = value.get(name)
        properties[name] = part
        if isinstance(inside, list) and isinstance(part, dict):
            properties[name], found = _taken_apart(part, inside)
            arrays += found
    return {**schema, "properties": properties}, arrays


def _says_only(schema: dict[str, Any], keywords: frozenset[str]) -> bool:
    return all(word in keywords or word in _WORDS or word.startswith("x-") for word in schema)
