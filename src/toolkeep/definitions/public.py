"""The schema of a tool as others may see it (VAL-6): what is secret keeps its type and its description.

A model, a page or a file of exports learns nothing that could help to guess a secret: no default, no
allowed values, no pattern, no limits, no examples. A property that is secret in one part of a schema is
treated so in every part, and so is a definition that a secret refers to. Our own keywords, which no
provider knows, stay here.
"""

from collections.abc import Iterator
from typing import Any

from toolkeep.definitions.frozen import thaw
from toolkeep.definitions.parameter import SECRET_KEY, TOUCHES_KEY, is_secret

_TOLD_OF_A_SECRET = frozenset(
    (
        "type", "title", "description", "format", "writeOnly", "readOnly", "deprecated", "properties",
        "required", "items", "prefixItems", "additionalProperties", "patternProperties", "allOf", "anyOf",
        "oneOf", "$ref", "$defs", "definitions",
    )
)  # fmt: skip
_AS_WRITTEN = frozenset(("default", "enum", "const", "examples", "example", "required"))
_NAMES = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))


def public_schema(schema: dict[str, Any], *, is_sensitive: bool = False) -> dict[str, Any]:
    """A copy without what is secret; of a sensitive tool everything is."""
    names, references = _secrets(schema)
    shown: dict[str, Any] = _show(schema, hides=is_sensitive, names=names, references=references, at="#")
    return shown


def has_secrets(schema: dict[str, Any]) -> bool:
    """Whether anything in a schema is marked secret."""
    return any(map(is_secret, _inside(schema)))


def _show(schema: Any, *, hides: bool, names: set[str], references: set[str], at: str) -> Any:
    if isinstance(schema, list):
        return [
            _show(item, hides=hides, names=names, references=references, at=f"{at}/{i}")
            for i, item in enumerate(schema)
        ]
    if not isinstance(schema, dict):
        return schema
    hides = hides or is_secret(schema) or at in references
    shown: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in (SECRET_KEY, TOUCHES_KEY) or (hides and keyword not in _TOLD_OF_A_SECRET):
            continue
        if keyword in _AS_WRITTEN:
            shown[keyword] = thaw(value)
        elif keyword in _NAMES and isinstance(value, dict):
            shown[keyword] = {
                name: _show(
                    inside,
                    hides=hides or (keyword == "properties" and name in names),
                    names=names,
                    references=references,
                    at=f"{at}/{keyword}/{name}",
                )
                for name, inside in value.items()
            }
        else:
            inside = _show(value, hides=hides, names=names, references=references, at=f"{at}/{keyword}")
            if keyword == "allOf" and isinstance(inside, list):
                inside = [part for part in inside if part != {}]  # one of ours held nothing else
                if not inside:
                    continue
            shown[keyword] = inside
    return shown


def _secrets(schema: dict[str, Any]) -> tuple[set[str], set[str]]:
    """The names of secret properties, and the definitions that secrets refer to."""
    if not has_secrets(schema):
        return set(), set()
    names = {name for name, inside in _properties(schema) if any(map(is_secret, _here(inside)))}
    secrets = [inside for name, inside in _properties(schema) if name in names]
    secrets += [part for part in _inside(schema) if is_secret(part)]
    references = {
        part["$ref"] for secret in secrets for part in _inside(secret) if isinstance(part.get("$ref"), str)
    }
    return names, references


def _properties(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for part in _inside(schema):
        if isinstance(part.get("properties"), dict):
            yield from part["properties"].items()


def _here(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and the parts that speak about the same value."""
    if isinstance(schema, dict):
        yield schema
        for keyword in ("allOf", "anyOf", "oneOf"):
            for part in schema.get(keyword) or ():
                yield from _here(part)


def _inside(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside a schema, itself first."""
    stack = [value]
    while stack:
        here = stack.pop()
        if isinstance(here, dict):
            yield here
            stack.extend(here.values())
        elif isinstance(here, list):
            stack.extend(here)
