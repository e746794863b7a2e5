"""Whether a schema lets through values that the engine itself does not look at.

Below an untyped value, a free map or a recursive place, a call can hold numbers beyond a float's range or
nest deeper than the limit: there the door looks for itself. Elsewhere the engine's own checks suffice,
and the door saves the time. When in doubt the answer is yes.
"""

from collections.abc import Callable
from typing import Any

from toolkeep.pointers import look_up
from toolkeep.validation.closing import InPlace
from toolkeep.validation.keywords import Schema, is_leaf, is_scalar, types_of


def is_open(in_place: InPlace, *, depth: int) -> bool:
    """Whether any place of a closed schema is open, recursive, or deeper than `depth`."""
    try:
        _Openness(in_place, depth).height(in_place.root, 0)
    except _Open:
        return True
    return False


class _Open(Exception):
    """There is such a place."""


class _Openness:
    def __init__(self, in_place: InPlace, depth: int) -> None:
        self.root = in_place.root
        self._in_place = in_place
        self._depth = depth
        self._heights: dict[int, int] = {}
        """Of the schemas that were looked at; those above the one in work are as high as can be."""

    def height(self, schema: Schema, level: int) -> int:
        """How deep values at a place of this level nest; `_Open` where they are not looked at."""
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
        # Parts below `not` and `if` count too: their children only make the answer more careful.
        heights = [
            self.height(child, level + 1) for part in self._in_place(schema) for child in _children(part)
        ]
        return 1 + max(heights, default=0)

    def _every_value(
        self, schema: Schema, holds: Callable[[dict[str, Any]], bool], above: frozenset[int]
    ) -> bool:
        """Whether something holds for every value that passes: by the schema itself, or by a part of it
        that surely applies."""
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
    """No object passes, or none with a property that nothing looks at."""
    types = types_of(schema)
    if _is_listed(schema) or (types is not None and "object" not in types):
        return True
    return any(schema.get(k, True) is not True for k in ("additionalProperties", "unevaluatedProperties"))


def _is_shut_array(schema: dict[str, Any]) -> bool:
    """No array passes, or none with an item that nothing looks at."""
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
