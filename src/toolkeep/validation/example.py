"""An example call built from types alone: never from the schema's own examples or defaults (VAL-6)."""

from typing import Any

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.redacted_schema import public_schema
from toolkeep.json_values.pointers import look_up
from toolkeep.validation.schema_keywords import Schema, types_of

_DEPTH = 8
"""Levels of nesting in an example; a recursive schema ends there."""
_MOST = 50
"""Characters and items of an example. A schema that demands more gets no example."""

_FORMATS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "email": "ada@example.org",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "example.org",
}


def example_call(tool: RegisteredTool) -> dict[str, Any] | None:
    """The smallest arguments that pass; None where types alone do not determine them."""
    # An enum or const of a sensitive tool may itself be the secret.
    if tool.definition.sensitive:
        return None
    schema, told = tool.arguments, public_schema(tool.arguments.schema)
    example = _Example(told).value(told, _DEPTH)
    is_fit = isinstance(example, dict) and schema.affords(example) and schema.is_valid(example)
    return example if is_fit else None


class _Example:
    """Builds the examples of one schema, each once: many places may reference the same subschema."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._made: dict[tuple[int, int], Any] = {}

    def value(self, schema: Schema, depth: int) -> Any:
        """A value that matches a subschema."""
        if not isinstance(schema, dict) or depth == 0:
            return None
        key = (id(schema), depth)
        if key not in self._made:
            self._made[key] = self._new(schema, depth)
        return self._made[key]

    def _new(self, schema: dict[str, Any], depth: int) -> Any:
        if isinstance(schema.get("$ref"), str):
            return self.value(look_up(self._root, schema["$ref"][1:]), depth - 1)
        if "enum" in schema or "const" in schema:
            return schema["enum"][0] if schema.get("enum") else schema.get("const")
        for keyword in ("anyOf", "oneOf", "allOf"):
            if schema.get(keyword) and "type" not in schema:
                return self.value(schema[keyword][0], depth - 1)
        types = types_of(schema) or frozenset(("object",) if "properties" in schema else ("string",))
        return self._typed(min(types, key=_PLAINEST.index), schema, depth)

    def _typed(self, name: str, schema: dict[str, Any], depth: int) -> Any:
        if name == "string":
            text = _FORMATS.get(schema.get("format", ""), "text")
            longest = min(int(schema.get("maxLength", _MOST)), _MOST)
            return text.ljust(min(int(schema.get("minLength", 0)), _MOST), "x")[:longest]
        if name in ("integer", "number"):
            return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        if name == "boolean":
            return True
        if name == "array":
            count = min(int(schema.get("minItems", 0)), _MOST)
            return [self.value(schema.get("items", True), depth - 1)] * count
        if name == "object":
            properties = schema.get("properties", {})
            required = schema.get("required", ())
            return {key: self.value(properties[key], depth - 1) for key in required if key in properties}
        return None


_PLAINEST = ("string", "integer", "number", "boolean", "array", "object", "null")
