"""Checks a large output in portions: the engine holds the interpreter while it checks, all other calls wait.

In comes a compiled output schema and a value that costs more than one call of the engine may. An array whose
schema speaks of each item alone is checked some items at a time, also where it stands in a plain object.
Anything else is not taken apart, and the answer is that it cannot be checked.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkeep.validation.compiler import CompiledSchema

_PLAIN_OBJECT = frozenset(
    ("type", "properties", "required", "additionalProperties", "minProperties", "maxProperties")
)
_PLAIN_ARRAY = frozenset(("type", "items", "minItems", "maxItems"))
_WORDS = frozenset(
    ("$defs", "$schema", "$comment", "title", "description", "default", "examples", "deprecated")
)


class Unaffordable(Exception):
    """Checking the value would take too much work at once."""


def is_valid_in_portions(schema: "CompiledSchema", value: Any) -> bool:
    """Whether a value fits its schema; raises `Unaffordable`."""
    rest, arrays = _taken_apart(schema.schema, value)
    if not arrays:
        raise Unaffordable
    if not schema.compile_part(rest).is_valid(value):  # which no longer looks at the items
        return False
    return all(_are_valid(schema, items, array) for items, array in arrays)


def _are_valid(schema: "CompiledSchema", items: dict[str, Any], array: list[Any]) -> bool:
    check = schema.compile_part({"type": "array", "items": items}).is_valid
    return all(check(portion) for portion in _portions(schema, array))


def _portions(schema: "CompiledSchema", array: list[Any]) -> Iterator[list[Any]]:
    """The items, as many at a time as may be checked at once."""
    waiting = [array]
    while waiting:
        portion = waiting.pop()
        if schema.affords(portion):
            yield portion
        elif len(portion) == 1:
            raise Unaffordable
        else:
            half = len(portion) // 2
            waiting += [portion[half:], portion[:half]]


_Array = tuple[dict[str, Any], list[Any]]
"""The schema of the items, and the items."""


def _taken_apart(schema: dict[str, Any], value: Any) -> tuple[dict[str, Any], list[_Array]]:
    """The schema without what it says of the items of arrays, and those items beside their schemas."""
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
