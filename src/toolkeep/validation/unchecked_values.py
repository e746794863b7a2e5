"""Decide whether a schema admits values that the engine itself does not check.

Below an untyped value, a free-form map or a recursive place, a call can hold numbers beyond a float's range
or nest deeper than the limit: validation checks those itself. Elsewhere the engine's checks suffice, which
saves time. In doubt the answer is yes.
"""

from collections.abc import Callable
from typing import Any

from toolkeep.json_values.pointers import look_up
from toolkeep.validation.close_objects import InPlace
from toolkeep.validation.schema_keywords import Schema, is_leaf, is_scalar, types_of


def is_open(in_place: InPlace, *, depth: int) -> bool:
    """Whether any place of a closed schema is open, recursive, or deeper than `depth`."""
    try:
        _Openness(in_place, depth).height(in_place.root, 0)
    except _Open:
        return True
    return False


class _Open(Exception):
    """The schema has such a place."""


class _Openness:
    def __init__(self, in_place: InPlace, depth: int) -> None:
        self.root = in_place.root
        self._in_place = in_place
        self._depth = depth
        self._heights: dict[int, int] = {}
        """Of the schemas visited so far; those in progress count as infinitely high."""

    def height(self, schema: Schema, level: int) -> int:
        """How deep values at a place of this level nest; raises `_Open` if they are not checked."""
        if not isinstance(schema, dict):
            if schema is True:
                raise _Open
            return 0
        if id(schema) not in self._heights:
            self._heights[id(schema)] = self._depth + 1
            self._heights[id(schema)] = 1 if is_scalar(schema) else self._height(schema, level)
        height = self._heights[id(schema)]
        if level + height > self._depth:
            raise _Open
        return height

    def _height(self, schema: dict[str, Any], level: int) -> int:
        if level >= self._depth or not all(
            self._every_value(schema, holds, frozenset())
            for holds in (_is_typed, _is_shut_object, _is_shut_array)
        ):
            raise _Open
        # Subschemas below `not` and `if` count too: that only makes the answer more cautious.
        heights = [
            self.height(child, level + 1) for part in self._in_place(schema) for child in _children(part)
        ]
        return 1 + max(heights, default=0)

    def _every_value(
        self, schema: Schema, holds: Callable[[dict[str, Any]], bool], above: frozenset[int]
    ) -> bool:
        """Whether something holds for every valid value: by the schema itself, or by a subschema that always
        applies."""
        if not isinstance(schema, dict):
            return schema is False
        if holds(schema):
            return True
        if id(schema) in above:
            return False
        below = above | {id(schema)}
        surely = list(schema.get("allOf", ()))
        if isinstance(schema.get("$ref"), str):
            surely.append(look_up(self.root, schema["$ref"][1:]))
        if any(self._every_value(part, holds, below) for part in surely):
            return True
        return any(
            bool(schema.get(keyword))
            and all(self._every_value(part, holds, below) for part in schema[keyword])
            for keyword in ("anyOf", "oneOf")
        )


def _is_listed(schema: dict[str, Any]) -> bool:
    return "enum" in schema or "const" in schema


def _is_typed(schema: dict[str, Any]) -> bool:
    return "type" in schema or _is_listed(schema)


def _is_shut_object(schema: dict[str, Any]) -> bool:
    """Whether no object is valid, or none with a property that is not checked."""
    types = types_of(schema)
    if _is_listed(schema) or (types is not None and "object" not in types):
        return True
    return any(schema.get(k, True) is not True for k in ("additionalProperties", "unevaluatedProperties"))


def _is_shut_array(schema: dict[str, Any]) -> bool:
    """Whether no array is valid, or none with an item that is not checked."""
    types = types_of(schema)
    if _is_listed(schema) or (types is not None and "array" not in types):
        return True
    if isinstance(schema.get("items"), list):
        return "additionalItems" in schema
    return "items" in schema or "unevaluatedItems" in schema


def _children(part: dict[str, Any]) -> list[Schema]:
    if is_leaf(part):
        return []
    children: list[Schema] = [
        *part.get("properties", {}).values(),
        *part.get("patternProperties", {}).values(),
    ]
    for keyword in (
        "additionalProperties", "unevaluatedProperties", "items", "additionalItems", "unevaluatedItems",
    ):  # fmt: skip
        children += [part[keyword]] if isinstance(part.get(keyword), (dict, bool)) else []
    for keyword in ("prefixItems", "items"):
        if isinstance(part.get(keyword), list):
            children.extend(part[keyword])
    return children
