"""The strict form of one tool: its schema, and how arguments are encoded and decoded."""

from typing import Any

from toolkeep.definitions.redacted_schema import public_schema
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.json_values.pointers import look_up
from toolkeep.limits import STRICT_DEPTH, STRICT_ENUM_VALUES, STRICT_PROPERTIES, STRICT_TEXT_CHARS
from toolkeep.providers.schema_adaptation import plain
from toolkeep.providers.schema_losses import Losses, NotExpressible
from toolkeep.providers.strict.build import Builder
from toolkeep.validation.schema_keywords import all_schemas


class StrictCodec:
    """Encodes and decodes the arguments of one tool."""

    def __init__(self, definition: ToolDefinition, losses: Losses) -> None:
        """Raises `NotExpressible` if the tool has no strict form within the limits."""
        schema = public_schema(definition.parameters, is_sensitive=definition.sensitive)
        builder = Builder(plain(schema), losses)
        self._root = builder.build()
        self.has_choices = builder.has_choices
        """Whether decoding compares alternatives, which costs more than reading."""
        self.schema: dict[str, Any] = self._root.schema
        if definitions := builder.definitions():
            self.schema["$defs"] = definitions
        _check_limits(self.schema)

    def encode(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments of the tool as a strict model writes them; raises `NotExpressible`."""
        encoded: dict[str, Any] = self._root.encode(arguments)
        return encoded

    def decode(self, written: Any) -> Any:
        """A strict model's output as arguments of the tool; raises `Undecodable`."""
        return self._root.decode(written)


def _check_limits(schema: dict[str, Any]) -> None:
    properties = chars = values = 0
    for inside in all_schemas(schema):
        names = inside.get("properties", {})
        options = inside.get("enum", ())
        properties += len(names)
        values += len(options)
        chars += sum(map(len, names)) + sum(len(option) for option in options if isinstance(option, str))
    chars += sum(map(len, schema.get("$defs", ())))
    if "$defs" in schema and _depth(schema, schema, {}) > STRICT_DEPTH:
        raise NotExpressible(f"its strict form is deeper than {STRICT_DEPTH} levels", "make it flatter")
    for what, count, most in (
        ("properties", properties, STRICT_PROPERTIES),
        ("enum values", values, STRICT_ENUM_VALUES),
        ("characters of names and enum values", chars, STRICT_TEXT_CHARS),
    ):
        if count > most:
            raise NotExpressible(f"its strict form has {count} {what}, at most {most} are taken", "split it")


def _depth(schema: dict[str, Any], root: dict[str, Any], known: dict[str, int]) -> int:
    """The nesting of objects and lists; each reference is followed once."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference not in known:
            known[reference] = 0  # a cycle
            known[reference] = _depth(look_up(root, reference[1:]), root, known)
        return known[reference]
    parts = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    if isinstance(schema.get("items"), dict):
        parts.append(schema["items"])
    deepest = max((_depth(part, root, known) for part in parts), default=0)
    return deepest + (schema.get("type") in ("object", "array"))
