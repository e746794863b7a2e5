"""Which JSON Schema a schema is written in, and what of it is rewritten with the same meaning.

draft-07 has no way to close a composed object, and most imported tools declare it, so it becomes 2019-09. Its
few differences are translated: `$ref` hides what stands beside it, `$id: "#name"` is an anchor, and keywords
that came later mean nothing. `dependencies` splits in two in every dialect: the engine applies it in all of
them, and nothing after this file knows it.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any

from toolkeep.definitions.parameter_marks import SECRET_KEY, is_secret
from toolkeep.validation.schema_keywords import LISTS, MAPS, SINGLE, Schema, all_schemas


class Dialect(Enum):
    """A version of JSON Schema, by the address that `$schema` holds."""

    DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"
    DRAFT_2019_09 = "https://json-schema.org/draft/2019-09/schema"
    DRAFT_07 = "http://json-schema.org/draft-07/schema"


_LATER_THAN_DRAFT_07 = frozenset(
    (
        "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef", "dependentRequired",
        "dependentSchemas", "maxContains", "minContains", "prefixItems", "unevaluatedItems",
        "unevaluatedProperties", "$vocabulary", "contentSchema",
    )
)  # fmt: skip


def dialect_of(schema: dict[str, Any]) -> Dialect | None:
    """The dialect that `$schema` declares; 2020-12 where it is missing, None for an unknown one."""
    declared = schema.get("$schema")
    if declared is None:
        return Dialect.DRAFT_2020_12
    if isinstance(declared, str):
        address = declared.rstrip("#")
        for dialect in Dialect:
            if address in (dialect.value, dialect.value.replace("http:", "https:")):
                return dialect
    return None


def upgrade(schema: dict[str, Any], dialect: Dialect) -> Schema:
    """The schema in the keywords that the rest of validation knows; it accepts exactly the same values."""
    upgraded: Schema = schema
    if dialect is Dialect.DRAFT_07:
        upgraded = _upgrade_draft_07(schema)
    elif any("dependencies" in part for part in all_schemas(schema)):
        upgraded = _split_dependencies(schema)
    return with_listed_properties(upgraded) if isinstance(upgraded, dict) else upgraded


def with_listed_properties(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema whose objects list each property that they require."""
    if not any(map(_unlisted, all_schemas(schema))):
        return schema
    return _list_required(schema)  # type: ignore[return-value]  # an object stays one


def _unlisted(schema: dict[str, Any]) -> list[str]:
    """The properties that an object requires and does not list. Closing the object would forbid them."""
    listed = schema.get("properties")
    if "required" not in schema or listed is None or not _LISTING.isdisjoint(schema):
        return []
    return [name for name in schema["required"] if name not in listed]


_COMPOSING = frozenset(("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"))
_LISTING = _COMPOSING | {"$ref", "additionalProperties", "unevaluatedProperties", "patternProperties"}
"""Beside one of these an object may have properties that it does not list itself."""


def _list_required(schema: Schema) -> Schema:
    """List what each object requires. The parts of a composed object are left: another part may list it."""
    if not isinstance(schema, dict):
        return schema
    listed: dict[str, Any] = {}
    for keyword, value in schema.items():
        is_part = keyword in _COMPOSING
        listed[keyword] = _inside(keyword, value, _list_inside_part if is_part else _list_required)
    if names := _unlisted(schema):
        listed["properties"] |= {name: {} for name in names}
    return listed


def _list_inside_part(schema: Schema) -> Schema:
    listed = _list_required(schema)
    if isinstance(schema, dict) and isinstance(listed, dict) and "properties" in schema:
        kept = {name: one for name, one in listed["properties"].items() if name in schema["properties"]}
        return {**listed, "properties": kept}
    return listed


def _upgrade_draft_07(schema: Schema) -> Schema:
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), str):
        definitions = {k: _inside(k, schema[k], _upgrade_draft_07) for k in _DEFINITIONS if k in schema}
        return {"$ref": schema["$ref"], **definitions, **_mark(schema)}
    upgraded: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _LATER_THAN_DRAFT_07:
            continue
        if keyword == "dependencies" and isinstance(value, dict):
            upgraded.update(_split(value, _upgrade_draft_07))
        elif keyword == "$id" and isinstance(value, str) and value.startswith("#"):
            upgraded["$anchor"] = value[1:]
        else:
            upgraded[keyword] = _inside(keyword, value, _upgrade_draft_07)
    return upgraded


_DEFINITIONS = ("$defs", "definitions")


def _mark(schema: dict[str, Any]) -> dict[str, Any]:
    """Keep the secret mark beside a draft-07 `$ref`, which hides all its siblings.

    A mark that is dropped here would put the secret into refusals and the log.
    """
    return {SECRET_KEY: True} if is_secret(schema) else {}


def _split_dependencies(schema: Schema) -> Schema:
    if not isinstance(schema, dict):
        return schema
    rest = {k: _inside(k, v, _split_dependencies) for k, v in schema.items() if k != "dependencies"}
    if "dependencies" in schema:
        rest["allOf"] = [*rest.get("allOf", []), _split(schema["dependencies"], _split_dependencies)]
    return rest


def _split(dependencies: dict[str, Any], rewrite: Callable[[Schema], Schema]) -> dict[str, Any]:
    required = {name: needs for name, needs in dependencies.items() if isinstance(needs, list)}
    schemas = {name: rewrite(needs) for name, needs in dependencies.items() if name not in required}
    return {"dependentRequired": required, "dependentSchemas": schemas}


def _inside(keyword: str, value: Any, rewrite: Callable[[Schema], Schema]) -> Any:
    """The value of a keyword with the schemas in it rewritten."""
    if keyword in MAPS and isinstance(value, dict):
        return {name: rewrite(schema) for name, schema in value.items()}
    if (keyword in LISTS or keyword == "items") and isinstance(value, list):
        return [rewrite(schema) for schema in value]
    return rewrite(value) if keyword in SINGLE else value
