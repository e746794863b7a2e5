"""Reads the text of a call straight into checked data, where a schema says no more than types can.

In comes a schema, references resolved; out goes a decoder that parses and checks in one go, in little more
than the time of a parser alone, or nothing. Whatever the decoder reads, the schema accepts, with the same
value; what it does not read proves nothing and goes through the engine. It skips properties that the schema
does not list: the caller counts members, as it does for keys that stand twice (`member_count.py`).
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, NotRequired, Required, TypedDict, Union

import msgspec

from toolkeep.json_values.pointers import look_up
from toolkeep.validation.schema_keywords import Schema, types_of

Decode = Callable[[bytes], dict[str, Any]]

_WORDS: Final = frozenset(
    (
        "$comment", "$defs", "$schema", "default", "definitions", "deprecated", "description", "examples",
        "readOnly", "title", "writeOnly",
    )
)  # fmt: skip
"""What accepts and refuses nothing."""

_ASSERTIONS: Final = {
    "string": frozenset(("minLength", "maxLength")),
    "integer": frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    "number": frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    "boolean": frozenset(),
    "null": frozenset(),
    "array": frozenset(("items", "minItems", "maxItems")),
    "object": frozenset(("properties", "required", "additionalProperties")),
}
"""What can be said of a value of each type, and be expressed."""

_BOUNDS: Final = {"minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt"}
_WIDEST: Final = 2**53
"""Beyond, a bound may not be the same number as a float."""


_UNMADE: Final = object()


class Inexpressible(Exception):
    """The schema says something that types do not."""


def make_decoder(schema: dict[str, Any]) -> Decode | None:
    """The decoder for a tool's arguments; None where there is none."""
    maker = _Maker(schema)
    try:
        if maker.kinds_of(schema) != ["object"]:
            return None
        return msgspec.json.Decoder(maker.type_of(schema)).decode
    except (Inexpressible, TypeError, ValueError, RecursionError):
        return None


class _Maker:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._made: dict[int, Any] = {}
        """By schema, each made once, however often it is referred to."""

    def type_of(self, schema: Schema) -> Any:
        """The type of all values that a schema accepts, and of no others."""
        if not isinstance(schema, dict):
            raise Inexpressible
        if id(schema) not in self._made:
            self._made[id(schema)] = _UNMADE
            self._made[id(schema)] = self._type_of(schema)
        if self._made[id(schema)] is _UNMADE:
            raise Inexpressible  # it leads to itself
        return self._made[id(schema)]

    def _type_of(self, schema: dict[str, Any]) -> Any:
        said = {word for word in schema if word not in _WORDS and not word.startswith("x-")}
        if said == {"$ref"}:
            return self.type_of(look_up(self._root, schema["$ref"][1:]))
        if said == {"anyOf"}:
            return self._any_of(schema["anyOf"])
        types = types_of(schema)
        if "enum" in said or "const" in said:
            return _one_of(schema, types, said)
        if not types or not said - {"type"} <= frozenset().union(*map(_ASSERTIONS.__getitem__, types)):
            raise Inexpressible
        return _union([self._named(name, schema) for name in sorted(types)], _kinds(types))

    def _any_of(self, branches: list[Schema]) -> Any:
        kinds = [kind for branch in branches for kind in self.kinds_of(branch)]
        return _union([self.type_of(branch) for branch in branches], kinds)

    def kinds_of(self, schema: Schema) -> list[str]:
        """The kinds of JSON value that a schema speaks of; raises where that cannot be told."""
        if isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
            schema = look_up(self._root, schema["$ref"][1:])
        types = types_of(schema) if isinstance(schema, dict) else None
        if types is None:
            raise Inexpressible
        return _kinds(types)

    def _named(self, name: str, schema: dict[str, Any]) -> Any:
        match name:
            case "string":
                return _sized(str, schema, "minLength", "maxLength")
            case "integer":
                return _bounded(int, schema)
            case "number":
                return Union[_bounded(int, schema), _bounded(float, schema)]  # noqa: UP007 -- made of values
            case "boolean":
                return bool
            case "null":
                return None
            case "array" if "items" in schema:
                items = self.type_of(schema["items"])
                return _sized(list[items], schema, "minItems", "maxItems")  # type: ignore[valid-type]  # a value here
            case "object" if schema.get("additionalProperties", False) is False:
                return self._object(schema)
        raise Inexpressible

    def _object(self, schema: dict[str, Any]) -> Any:
        properties, required = schema.get("properties"), schema.get("required", ())
        if not isinstance(properties, Mapping) or not properties.keys() >= set(required):
            raise Inexpressible
        fields = {
            name: (Required if name in required else NotRequired)[self.type_of(inside)]
            for name, inside in properties.items()
        }
        return TypedDict("Arguments", fields)  # type: ignore[operator]  # the fields are known only here


def _one_of(schema: dict[str, Any], types: frozenset[str] | None, said: set[str]) -> Any:
    """Texts, whole numbers and null, listed."""
    if not said <= {"type", "enum"} and not said <= {"type", "const"}:
        raise Inexpressible
    values = schema["enum"] if "enum" in said else [schema["const"]]
    for value in values:
        kind = _LISTED.get(type(value))
        if kind is None or (types is not None and kind not in types):
            raise Inexpressible
    return Literal[tuple(values)]


_LISTED: Final = {str: "string", int: "integer", type(None): "null"}


def _kinds(types: frozenset[str]) -> list[str]:
    """Whole numbers are numbers: a value of one kind is looked at by one type."""
    return ["number" if name == "integer" else name for name in types]


def _union(types: list[Any], kinds: list[str]) -> Any:
    if len(set(kinds)) != len(kinds):
        raise Inexpressible
    return Union[tuple(types)]  # noqa: UP007 -- made of values


def _sized(base: Any, schema: dict[str, Any], least: str, most: str) -> Any:
    given = {"min_length": schema.get(least), "max_length": schema.get(most)}
    limits = {name: limit for name, limit in given.items() if limit is not None}
    if not all(type(limit) is int and 0 <= limit < _WIDEST for limit in limits.values()):
        raise Inexpressible
    return Annotated[base, msgspec.Meta(**limits)] if limits else base


def _bounded(base: type[int] | type[float], schema: dict[str, Any]) -> Any:
    bounds = {short: schema[word] for word, short in _BOUNDS.items() if word in schema}
    if not all(type(bound) is int and abs(bound) < _WIDEST for bound in bounds.values()):
        raise Inexpressible
    limits: dict[str, Any] = {short: base(bound) for short, bound in bounds.items()}
    return Annotated[base, msgspec.Meta(**limits)] if limits else base
