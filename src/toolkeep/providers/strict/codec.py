"""The strict form of one tool: its schema, and how arguments go there and back."""

from typing import Any

from toolkeep.definitions.public import public_schema
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.limits import STRICT_DEPTH, STRICT_ENUM_VALUES, STRICT_PROPERTIES, STRICT_TEXT_CHARS
from toolkeep.providers.fitting import plain
from toolkeep.providers.losses import Losses, NotExpressible
from toolkeep.providers.strict.build import Builder
from toolkeep.validation.keywords import every_schema


class StrictCodec:
    """Rewrites the arguments of one tool."""

    def __init__(self, definition: ToolDefinition, losses: Losses) -> None:
        """Raises `NotExpressible` where the tool has no strict form within the limits."""
        schema = public_schema(definition.parameters, is_sensitive=definition.sensitive)
        builder = Builder(plain(schema), losses)
        self._root = builder.build()
        self.schema: dict[str, Any] = self._root.schema
        if definitions := builder.definitions():
            self.schema["$defs"] = definitions
        _check_limits(self.schema)

    def encode(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments of the tool as a strict model writes them; raises `NotExpressible`."""
        encoded: dict[str, Any] = self._root.encode(arguments)
        return encoded

    def decode(self, written: Any) -> Any:
        """What a strict model wrote as arguments of the tool; raises `Undecodable`."""
        return self._root.decode(written)


def _check_limits(schema: dict[str, Any]) -> None:
    properties = chars = values = 0
    for path, inside in every_schema(schema):
        names = inside.get("properties", {})
        properties += len(names)
        options = [option for option in inside.get("enum", ()) if isinstance(option, str)]
        values += len(inside.get("enum", ()))
        chars += sum(map(len, names)) + sum(map(len, options))
        if path.count("/properties/") + path.count("/items") > 2 * STRICT_DEPTH:
            raise NotExpressible(f"its strict form is deeper than {STRICT_DEPTH} levels", "make it flatter")
    chars += sum(map(len, schema.get("$defs", ())))
    for what, count, most in (
        ("properties", properties, STRICT_PROPERTIES),
        ("enum values", values, STRICT_ENUM_VALUES),
        ("characters of names and enum values", chars, STRICT_TEXT_CHARS),
    ):
        if count > most:
            raise NotExpressible(f"its strict form has {count} {what}, at most {most} are taken", "split it")
