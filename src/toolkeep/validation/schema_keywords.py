"""The keywords of JSON Schema that hold other schemas, and how to walk them.

Knows both shapes of `items` (2019-09 allows a list) and the reference forms that `references` leaves:
`{"$ref": "#/pointer"}` and nothing else.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

from toolkeep.json_values.pointers import pointer

Schema: TypeAlias = dict[str, Any] | bool

MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
SINGLE = (
    "items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties",
    "unevaluatedProperties", "propertyNames", "not", "if", "then", "else", "contentSchema",
)  # fmt: skip

KNOWN = frozenset(
    (
        *MAPS, *LISTS, *SINGLE, "$schema", "$id", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor",
        "$recursiveRef", "$recursiveAnchor", "$vocabulary", "$comment", "type", "enum", "const", "required",
        "dependentRequired", "dependencies", "minProperties", "maxProperties", "minItems", "maxItems",
        "uniqueItems", "minContains", "maxContains", "minLength", "maxLength", "pattern", "format", "minimum",
        "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "title", "description", "default",
        "example", "examples", "deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType",
    )
)  # fmt: skip

DECLARES_TYPE = frozenset(
    ("type", "enum", "const", "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if")
)
"""Keywords of which each says what a value may be (VAL-3)."""

ASSERTED_FORMATS = frozenset(
    (
        "date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4",
        "ipv6", "uri", "uri-reference", "iri", "iri-reference", "uuid", "uri-template", "json-pointer",
        "relative-json-pointer", "regex",
    )
)  # fmt: skip
"""The formats of 2020-12; others are notes to the reader."""


HOLDERS = frozenset((*MAPS, *LISTS, *SINGLE))
"""Keywords that hold other schemas."""
_MAPS, _SINGLE = frozenset(MAPS), frozenset(SINGLE)


def is_leaf(schema: dict[str, Any]) -> bool:
    """Whether a schema certainly contains no subschema, which is the common case."""
    return HOLDERS.isdisjoint(schema)


def scalars_of(schema: Schema) -> frozenset[str]:
    """The types that a schema accepts if it excludes objects and arrays itself; empty otherwise."""
    types = types_of(schema) if isinstance(schema, dict) else _NONE
    if types is not None:
        return types if types <= _SCALARS else _NONE
    branches = schema.get("anyOf") if isinstance(schema, dict) else None
    found = [scalars_of(branch) for branch in branches] if isinstance(branches, list) else []
    return frozenset().union(*found) if all(found) else _NONE


def is_scalar(schema: Schema) -> bool:
    """Whether a schema itself excludes objects and arrays."""
    return bool(scalars_of(schema))


_SCALARS = frozenset(("string", "number", "integer", "boolean", "null"))
_NONE: frozenset[str] = frozenset()


def children(schema: Schema) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """Every direct subschema, with the keys that lead to it."""
    if not isinstance(schema, dict) or is_leaf(schema):
        return
    for keyword, value in schema.items():
        if keyword not in HOLDERS:
            continue
        if keyword in _MAPS:
            if isinstance(value, dict):
                yield from (((keyword, name), item) for name, item in value.items() if _is_schema(item))
        elif isinstance(value, list):
            yield from (((keyword, str(i)), item) for i, item in enumerate(value) if _is_schema(item))
        elif keyword in _SINGLE and isinstance(value, (dict, bool)):
            yield (keyword,), value


def all_schemas(schema: Schema) -> Iterator[dict[str, Any]]:
    """The schema and every subschema."""
    stack: list[Any] = [schema]
    while stack:
        here = stack.pop()
        if isinstance(here, dict):
            yield here
            if not is_leaf(here):
                stack += directly_inside(here)


def directly_inside(schema: dict[str, Any]) -> list[Any]:
    """The schemas of `children` without the keys, in half the time. Other values may be among them."""
    inside: list[Any] = []
    for keyword, value in schema.items():
        if keyword not in HOLDERS:
            continue
        if isinstance(value, list):
            inside += value if keyword not in _MAPS else ()
        elif isinstance(value, dict):
            inside += value.values() if keyword in _MAPS else (value,) if keyword in _SINGLE else ()
    return inside


def every_schema(schema: Schema, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The schema and every subschema, with its JSON Pointer."""
    if isinstance(schema, dict):
        yield path, schema
        for keys, child in children(schema):
            if not isinstance(child, dict):
                continue
            here = path + pointer(keys)
            if is_leaf(child):
                yield here, child
            else:
                yield from every_schema(child, here)


def _is_schema(value: object) -> bool:
    return isinstance(value, (dict, bool))


def types_of(schema: dict[str, Any]) -> frozenset[str] | None:
    """The types that `type` allows; None where it is missing."""
    declared = schema.get("type")
    if isinstance(declared, str):
        return _ONE_TYPE.get(declared) or frozenset((declared,))
    if isinstance(declared, list):
        return frozenset(name for name in declared if isinstance(name, str))
    return None


_ONE_TYPE = {
    name: frozenset((name,)) for name in ("string", "number", "integer", "boolean", "array", "object", "null")
}
