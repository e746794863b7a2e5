"""Read a schema uniformly for comparison: types, names, numbers, references."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.json_values.pointers import referred
from toolkeep.validation.schema_keywords import MAPS, Schema, types_of

ANNOTATIONS: Final = ("title", "description", "examples", "example", "$comment", "deprecated")
DEFINITIONS: Final = frozenset(("$defs", "definitions"))
COMPOSERS: Final = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "not")
OBJECTS: Final = (
    "properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "required",
    "minProperties", "maxProperties", "dependentRequired", "propertyNames",
)  # fmt: skip
_LISTS: Final = (
    "items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "minContains", "maxContains",
    "minItems", "maxItems", "uniqueItems",
)  # fmt: skip
_STRINGS: Final = ("minLength", "maxLength", "pattern", "format")
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
RELEVANT: Final = {
    **dict.fromkeys(OBJECTS, frozenset(("object",))),
    **dict.fromkeys(_LISTS, frozenset(("array",))),
    **dict.fromkeys(_STRINGS, frozenset(("string",))),
    **dict.fromkeys(_NUMBERS, frozenset(("integer", "number"))),
}
"""The types that a keyword applies to: if either schema accepts none of them, the keyword has no effect."""
ALL_TYPES: Final = frozenset(("object", "array", "string", "number", "integer", "boolean", "null"))

ANYTHING: Final[dict[str, Any]] = {}
_OTHER_REFERENCES: Final = ("$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$recursiveAnchor")


def has_other_references(root: dict[str, Any]) -> bool:
    """Whether references may resolve to something else than a pointer from the root."""
    for schema in parts_of(root):
        if any(keyword in schema for keyword in _OTHER_REFERENCES) or (
            "$id" in schema and schema is not root
        ):
            return True
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference != "#" and not reference.startswith("#/"):
            return True
    return False


def bare(schema: Any) -> Any:
    """A schema without annotations; a property may have the name of an annotation."""
    if isinstance(schema, list):
        return [bare(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    shown: dict[str, Any] = {}
    for key, value in schema.items():
        if key in (*MAPS, "dependentRequired", "dependencies") and isinstance(value, dict):
            shown[key] = {name: bare(inside) for name, inside in value.items()}
        elif key in ("enum", "const", "default"):
            shown[key] = value
        elif key not in ANNOTATIONS:
            shown[key] = bare(value)
    return shown


def is_equal(before: Any, after: Any) -> bool:
    """Compare as JSON: in Python 1, 1.0 and True are equal."""
    return canonical_bytes(before) == canonical_bytes(after)


def parts_of(value: Any) -> Iterator[Any]:
    """Every object inside a value, itself first: equal values give the same order."""
    if isinstance(value, dict):
        yield value
        for key in sorted(value):
            yield from parts_of(value[key])
    elif isinstance(value, list):
        for item in value:
            yield from parts_of(item)


def types_taken(schema: dict[str, Any]) -> frozenset[str]:
    """The types that it accepts; number includes integer."""
    declared = types_of(schema)
    if declared is None:
        return ALL_TYPES
    return declared | {"integer"} if "number" in declared else declared


def allowed_values(schema: dict[str, Any]) -> dict[bytes, Any] | None:
    """The listed values by canonical form; None if any value is accepted."""
    listed = schema.get("enum") if "enum" in schema else None
    values = listed if isinstance(listed, list) else None
    if "const" in schema:
        const = schema["const"]
        values = [const] if values is None else [value for value in values if is_equal(value, const)]
    return None if values is None else {canonical_bytes(value): value for value in values}


def unmatched(old: list[Any], new: list[Any]) -> tuple[list[Any], list[Any]]:
    """The elements of two lists without an equal in the other."""
    rest = [(canonical_bytes(part), part) for part in new]
    gone = []
    for part in old:
        text = canonical_bytes(part)
        index = next((i for i, (other, _) in enumerate(rest) if other == text), None)
        if index is None:
            gone.append(part)
        else:
            rest.pop(index)
    return gone, [part for _, part in rest]


def are_disjoint(*schemas: dict[str, Any]) -> bool:
    """Whether no value matches two alternatives, by their types only."""
    for schema in schemas:
        met: set[str] = set()
        for part in schema["oneOf"]:
            declared = types_of(part) if isinstance(part, dict) else None
            if declared is None or types_taken(part) & met:
                return False
            met |= types_taken(part)
    return True


def number_of(value: Any) -> Fraction | None:
    """The exact number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return Fraction(str(value)) if isinstance(value, float) else Fraction(value)


def required_names(schema: dict[str, Any]) -> set[str]:
    """What an object must have."""
    return {name for name in schema.get("required") or () if isinstance(name, str)}


def map_of(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    """The schemas under a keyword by name; empty if it is no object."""
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def look_up(root: dict[str, Any], reference: Any) -> Schema | None:
    """The target of a local reference; None if that is no schema."""
    try:
        target = referred(root, reference)
    except KeyError:
        return None
    return target if isinstance(target, (dict, bool)) else None


def references_in(value: Any) -> Iterator[str]:
    """Every reference inside a value, except those in its definitions."""
    for part in parts_of(
        {k: v for k, v in value.items() if k not in DEFINITIONS} if isinstance(value, dict) else value
    ):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]


def without_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """What a schema itself says, without annotations."""
    return {key: value for key, value in bare(schema).items() if key not in DEFINITIONS}
