"""The schema of a tool as others may see it (VAL-6): what is secret keeps its type and its description.

A model, a page or a file of exports learns nothing that could help to guess a secret: no default, no
allowed values, no pattern, no limits, no examples. Our own keywords, which no provider knows, stay here.
"""

from typing import Any

from toolkeep.definitions.frozen import thaw
from toolkeep.definitions.parameter import SECRET_KEY, TOUCHES_KEY, is_secret

_TELLING = frozenset(
    (
        "default", "enum", "const", "pattern", "examples", "example", "minLength", "maxLength", "minimum",
        "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    )
)  # fmt: skip

_NAMES = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))


def public_schema(schema: Any, *, is_sensitive: bool = False) -> Any:
    """A copy without what is secret; of a sensitive tool everything is."""
    if isinstance(schema, list):
        return [public_schema(item, is_sensitive=is_sensitive) for item in schema]
    if not isinstance(schema, dict):
        return schema
    hides = is_sensitive or is_secret(schema)
    shown: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in (SECRET_KEY, TOUCHES_KEY):
            continue
        if keyword in _TELLING:
            if not hides:
                shown[keyword] = thaw(value)
        elif keyword in _NAMES and isinstance(value, dict):
            shown[keyword] = {n: public_schema(inside, is_sensitive=hides) for n, inside in value.items()}
        else:
            shown[keyword] = public_schema(value, is_sensitive=hides)
    return shown
