"""A schema in one line: what a value should look like, and the signature of a whole tool.

Shows types, allowed values and limits, never defaults or examples; of a secret only its type.
"""

import json
from typing import Any

from toolkeep.definitions.parameter_marks import is_secret
from toolkeep.json_values.pointers import look_up
from toolkeep.limits import HINT_CHARS, LISTED_NAMES
from toolkeep.text.display import echo, echo_name, listing, shorten
from toolkeep.validation.close_objects import in_place
from toolkeep.validation.schema_keywords import Schema, types_of

_DEPTH = 3
"""How deep a signature describes nested objects."""

_RANGES = (
    ("minimum", "≥ {}"),
    ("exclusiveMinimum", "> {}"),
    ("maximum", "≤ {}"),
    ("exclusiveMaximum", "< {}"),
)


def signature(name: str, root: dict[str, Any], *, is_sensitive: bool = False) -> str:
    """`read_file expects: {path: string, encoding?: "utf-8" | "ascii"}`"""
    return shorten(
        f"{name} expects: {_object(root, root, _DEPTH, hide=is_sensitive or is_secret(root))}", HINT_CHARS
    )


def describe(schema: Schema, root: dict[str, Any], *, depth: int = 1, hide: bool = False) -> str:
    """What a value at this place should be, in a few words."""
    if not isinstance(schema, dict):
        return "any JSON" if schema else "nothing"
    hide = hide or any(map(is_secret, in_place(schema, root)))
    if isinstance(schema.get("$ref"), str):
        return (
            describe(look_up(root, schema["$ref"][1:]), root, depth=depth - 1, hide=hide)
            if depth >= 0
            else "…"
        )
    if "enum" in schema or "const" in schema:
        return _values(schema, hide=hide)
    for keyword in ("anyOf", "oneOf"):
        if branches := schema.get(keyword):
            texts = [describe(branch, root, depth=depth - 1, hide=hide) for branch in branches]
            different = list(dict.fromkeys(texts))
            return listing(different, len(different), LISTED_NAMES, " | ") if depth >= 0 else "…"
    types = types_of(schema)
    if types is None:
        parts = [
            describe(part, root, depth=depth - 1, hide=hide) for part in schema.get("allOf", ()) if depth >= 0
        ]
        return next((text for text in parts if text != "any JSON"), "any JSON")
    return " | ".join(_typed(name, schema, root, depth, hide=hide) for name in _in_order(schema, types))


def _in_order(schema: dict[str, Any], types: frozenset[str]) -> list[str]:
    declared = schema["type"]
    return declared if isinstance(declared, list) else list(types)


def _values(schema: dict[str, Any], *, hide: bool) -> str:
    values = schema.get("enum", [schema.get("const")])
    if hide:
        types = types_of(schema)
        return " | ".join(sorted(types)) if types else "one of a few values"
    return listing(map(echo, values), len(values), LISTED_NAMES, " | ")


def _typed(name: str, schema: dict[str, Any], root: dict[str, Any], depth: int, *, hide: bool) -> str:
    if name == "object" and depth > 0:
        return _object(schema, root, depth - 1, hide=hide)
    if name == "array" and isinstance(schema.get("items"), dict) and depth >= 0:
        item = describe(schema["items"], root, depth=depth - 1, hide=hide)
        return f"({item})[]" if " " in item and not item.startswith("{") else f"{item}[]"
    if hide:
        return name
    return name + _limits(name, schema)


def _limits(name: str, schema: dict[str, Any]) -> str:
    notes: list[str] = []
    if name in ("integer", "number"):
        notes += [text.format(json.dumps(schema[key])) for key, text in _RANGES if key in schema]
    if name == "string" and isinstance(schema.get("format"), str):
        notes.append(echo_name(schema["format"]))
    if name == "string" and "maxLength" in schema:
        notes.append(f"at most {schema['maxLength']} characters")
    return f" ({', '.join(notes)})" if notes else ""


def _object(schema: dict[str, Any], root: dict[str, Any], depth: int, *, hide: bool) -> str:
    if isinstance(schema.get("$ref"), str) and "properties" not in schema:
        target = look_up(root, schema["$ref"][1:])
        return (
            _object(target, root, depth - 1, hide=hide)
            if isinstance(target, dict) and depth > -4
            else "object"
        )
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return "object" if schema is not root else "{}"
    required = schema.get("required", ())
    members = [
        echo_name(name)
        + ("" if name in required else "?")
        + f": {describe(inside, root, depth=depth, hide=hide)}"
        for name, inside in properties.items()
    ]
    return "{" + ", ".join(members) + "}"
