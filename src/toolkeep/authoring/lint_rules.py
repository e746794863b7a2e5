"""Advice for authors (DEF-13): nothing here refuses a tool, all of it makes models call it better."""

from collections.abc import Iterator
from typing import Any

import msgspec

from toolkeep.authoring.declaration_advice import declaration
from toolkeep.definitions.parameter import ANY_TYPE, TYPE_KEYWORDS
from toolkeep.definitions.tool import ToolDefinition

DEEPEST = 3
"""Objects inside objects beyond this are hard for a model to fill in."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of advice: which rule, where, and what to do."""

    rule: str
    field: str
    message: str
    fix: str

    def to_dict(self) -> dict[str, str]:
        """The finding as JSON data."""
        return {"rule": self.rule, "field": self.field, "message": self.message, "fix": self.fix}


def lint_definition(definition: ToolDefinition) -> list[Finding]:
    """Everything worth improving, in schema order."""
    findings = list(_tool(definition))
    findings += _schema(definition.parameters, "parameters", 0)
    return findings


def _finding(rule: str, field: str, message: str, fix: str) -> Finding:
    return Finding(rule=rule, field=field, message=message, fix=fix)


def _tool(definition: ToolDefinition) -> Iterator[Finding]:
    if not definition.description.strip():
        yield _finding("no-description", "description", "the tool has no description", "say what it does")
    if definition.is_undeclared:
        message = "neither danger nor side effects are declared, so a person is asked about each call"
        yield _finding("undeclared", "side_effects", message, f"add {declaration(definition)}")
    if definition.properties and "required" not in definition.parameters:
        yield _finding("no-required", "parameters", "no parameter is required", 'list "required", or []')


def _schema(schema: Any, field: str, depth: int) -> Iterator[Finding]:
    if not isinstance(schema, dict):
        return
    if depth > DEEPEST:
        yield _finding(
            "deep-nesting", field, f"objects are nested deeper than {DEEPEST}", "use flatter parameters"
        )
        return
    yield from _texts(schema, field)
    for name, inside in _dict(schema.get("properties")).items():
        yield from _property(inside, f"{field}/properties/{name}")
        yield from _schema(inside, f"{field}/properties/{name}", depth + 1)
    if isinstance(schema.get("items"), dict):
        yield from _schema(schema["items"], f"{field}/items", depth)
    for keyword in ("anyOf", "oneOf", "allOf"):
        for index, branch in enumerate(schema.get(keyword) or ()):
            yield from _schema(branch, f"{field}/{keyword}/{index}", depth)
    for name, inside in _dict(schema.get("$defs")).items():
        yield from _schema(inside, f"{field}/$defs/{name}", 1)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _property(schema: Any, field: str) -> Iterator[Finding]:
    if schema is True or (isinstance(schema, dict) and not TYPE_KEYWORDS & schema.keys()):
        yield _finding("no-type", field, "declares no type", 'add "type"')
    elif isinstance(schema, dict) and _is_free_value(schema):
        message = "takes any value, and models guess what it should be"
        yield _finding("free-value", field, message, "declare a type, or several")
    elif isinstance(schema, dict) and schema.get("type") == "object" and _SHAPES.isdisjoint(schema):
        message = "is an object of any properties, and models guess them"
        yield _finding("free-map", field, message, 'add "properties", or a type as "additionalProperties"')
    if isinstance(schema, dict) and not schema.get("description") and "$ref" not in schema:
        yield _finding("no-description", field, "has no description", "say what it is for")


def _is_free_value(schema: dict[str, Any]) -> bool:
    types = schema.get("type")
    return isinstance(types, list) and set(ANY_TYPE).issubset(types) and "enum" not in schema


_SHAPES = frozenset(
    (
        "properties",
        "additionalProperties",
        "patternProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "$ref",
        "enum",
        "const",
    )
)


def _texts(schema: dict[str, Any], field: str) -> Iterator[Finding]:
    if _is_free_value(schema):
        return
    types = schema.get("type")
    declared = types if isinstance(types, list) else [types]
    is_listed = "enum" in schema or "const" in schema
    if "string" in declared and not is_listed and "maxLength" not in schema and "format" not in schema:
        yield _finding("no-max-length", field, "a string without maxLength", 'add "maxLength"')
    if "array" in declared and "maxItems" not in schema and not is_listed:
        yield _finding("no-max-items", field, "an array without maxItems", 'add "maxItems"')
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not (pattern.startswith("^") and pattern.endswith("$")):
        yield _finding("unanchored-pattern", field, "the pattern matches anywhere in the text", "write ^…$")
