"""Which JSON Schema a schema is written in; draft-07 is rewritten into 2019-09 with the same meaning.

2020-12 and 2019-09 are read as they are. draft-07 has no way to close a composed object, and most imported
tools declare it, so its few differences are translated: `$ref` hides what stands beside it, `dependencies`
splits in two, `$id: "#name"` is an anchor, and keywords that came later mean nothing.
"""

from enum import Enum
from typing import Any

from toolkeep.validation.keywords import LISTS, MAPS, SINGLE, Schema


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
    """The dialect that `$schema` declares, 2020-12 where it is silent, None for any other."""
    declared = schema.get("$schema")
    if declared is None:
        return Dialect.DRAFT_2020_12
    if isinstance(declared, str):
        address = declared.rstrip("#")
        for dialect in Dialect:
            if address in (dialect.value, dialect.value.replace("http:", "https:")):
                return dialect
    return None


def upgrade_draft_07(schema: Schema) -> Schema:
    """A draft-07 schema as a 2019-09 schema that accepts exactly the same values."""
    if not isinstance(schema, dict):
        return schema
    definitions: dict[str, Any] = {
        key: _upgrade_values(schema[key]) for key in ("$defs", "definitions") if key in schema
    }
    if isinstance(schema.get("$ref"), str):
        return {"$ref": schema["$ref"], **definitions}
    upgraded: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _LATER_THAN_DRAFT_07:
            continue
        if keyword == "dependencies" and isinstance(value, dict):
            upgraded.update(_split_dependencies(value))
        elif keyword == "$id" and isinstance(value, str) and value.startswith("#"):
            upgraded["$anchor"] = value[1:]
        elif keyword in MAPS:
            upgraded[keyword] = _upgrade_values(value)
        elif (keyword in LISTS or keyword == "items") and isinstance(value, list):
            upgraded[keyword] = [upgrade_draft_07(item) for item in value]
        elif keyword in SINGLE:
            upgraded[keyword] = upgrade_draft_07(value)
        else:
            upgraded[keyword] = value
    return upgraded


def _upgrade_values(schemas: Any) -> Any:
    if not isinstance(schemas, dict):
        return schemas
    return {name: upgrade_draft_07(schema) for name, schema in schemas.items()}


def _split_dependencies(dependencies: dict[str, Any]) -> dict[str, Any]:
    required = {name: needs for name, needs in dependencies.items() if isinstance(needs, list)}
    schemas = {name: upgrade_draft_07(needs) for name, needs in dependencies.items() if name not in required}
    return {"dependentRequired": required, "dependentSchemas": schemas}
