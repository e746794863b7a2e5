"""Definitions taken over from other systems, which are trusted with nothing.

A name that is not portable is mapped and the original kept; danger is medium unless annotations raise it;
a schema under any of the usual keys is read as it is. The rules for authors only warn about these.
"""

from collections.abc import Mapping
from typing import Any

from toolkeep.definitions.check import refuse_problems
from toolkeep.definitions.frozen import FrozenDict, NotJson, freeze_object
from toolkeep.definitions.names import portable_name
from toolkeep.definitions.parameter import NO_PARAMETERS
from toolkeep.definitions.tool import Source, SourceKind, ToolDefinition
from toolkeep.definitions.vocabulary import Danger
from toolkeep.errors import Code, Problem

SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema", "schema")
OUTPUT_KEYS = ("output_schema", "outputSchema")


def definition_from_elsewhere(data: Mapping[str, Any], *, kind: SourceKind, origin: str) -> ToolDefinition:
    """A definition from another system's data: name, description, a schema, annotations."""
    original = data.get("name") if hasattr(data, "get") else None
    if not isinstance(original, str) or not original:
        problem = Problem(
            field="name", code=Code.DEFINITION_INVALID, message="is not text", mend="the source must name it"
        )
        refuse_problems(str(original), [problem])
    name = portable_name(str(original))
    description = data.get("description")
    return ToolDefinition(
        name=name,
        description=description if isinstance(description, str) else "",
        parameters=_schema(name, data, SCHEMA_KEYS) or NO_PARAMETERS,
        output_schema=_schema(name, data, OUTPUT_KEYS),
        danger=_danger(data.get("annotations")),
        source=Source(kind=kind, origin=origin, name="" if name == original else str(original)),
    )


def _schema(name: str, data: Mapping[str, Any], keys: tuple[str, ...]) -> FrozenDict | None:
    found = next((data[key] for key in keys if data.get(key) is not None), None)
    if found is None:
        return None
    try:
        return freeze_object(found, keys[0])
    except NotJson as error:
        problem = Problem(
            field=error.path, code=Code.DEFINITION_INVALID, message=error.reason, mend="use JSON data only"
        )
        refuse_problems(name, [problem])
        raise


def _danger(annotations: object) -> Danger:
    """Annotations come from the other side: they may raise danger, never lower it (DEF-8)."""
    if isinstance(annotations, Mapping) and annotations.get("destructiveHint") is True:
        return Danger.HIGH
    return Danger.MEDIUM
