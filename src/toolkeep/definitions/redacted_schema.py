"""The schema of a tool as others may see it (VAL-6): a secret parameter keeps its type and description only.

A model, a web page or an export learns nothing that helps to guess a secret: no default, enum, pattern,
limits or examples. `find_secret_subschemas` decides what is secret. Toolkeep's own keywords, which no
provider knows, are removed.
"""

from typing import Any

from toolkeep.definitions.parameter_marks import FLOW_KEY, SECRET_KEY, TOUCHES_KEY
from toolkeep.definitions.secret_subschemas import find_secret_subschemas
from toolkeep.json_values.frozen import thaw

_TOLD_OF_A_SECRET = frozenset(
    (
        "type", "title", "description", "format", "writeOnly", "readOnly", "deprecated", "properties",
        "required", "items", "prefixItems", "additionalProperties", "patternProperties", "allOf", "anyOf",
        "oneOf", "$ref", "$defs", "definitions",
    )
)  # fmt: skip
_OURS = frozenset((FLOW_KEY, SECRET_KEY, TOUCHES_KEY))
_AS_WRITTEN = frozenset(("default", "enum", "const", "examples", "example", "required"))
_NAMES = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))


def public_schema(schema: dict[str, Any], *, is_sensitive: bool = False) -> dict[str, Any]:
    """A copy without secrets; for a sensitive tool everything is secret."""
    return _copy(schema, is_sensitive=is_sensitive, removed=_OURS)


def without_secrets(schema: dict[str, Any], *, is_sensitive: bool = False) -> dict[str, Any]:
    """As `public_schema`, with toolkeep's own keywords: equal to the schema if that holds no secret."""
    return _copy(schema, is_sensitive=is_sensitive, removed=frozenset())


def _copy(schema: dict[str, Any], *, is_sensitive: bool, removed: frozenset[str]) -> dict[str, Any]:
    secret = find_secret_subschemas(schema)
    shown: dict[str, Any] = _show(schema, hides=is_sensitive, secret=secret, removed=removed)
    return shown


def _show(schema: Any, *, hides: bool, secret: set[int], removed: frozenset[str]) -> Any:
    if isinstance(schema, list):
        return [_show(item, hides=hides, secret=secret, removed=removed) for item in schema]
    if not isinstance(schema, dict):
        return schema
    hides = hides or id(schema) in secret
    shown: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in removed or (hides and keyword not in _TOLD_OF_A_SECRET | _OURS):
            continue
        if keyword in _AS_WRITTEN:
            shown[keyword] = thaw(value)
        elif keyword in _NAMES and isinstance(value, dict):
            shown[keyword] = {
                name: _show(inside, hides=hides, secret=secret, removed=removed)
                for name, inside in value.items()
            }
        else:
            inside = _show(value, hides=hides, secret=secret, removed=removed)
            if keyword == "allOf" and isinstance(inside, list):
                inside = [part for part in inside if part != {}]  # it held only keywords of our own
                if not inside:
                    continue
            shown[keyword] = inside
    return shown
