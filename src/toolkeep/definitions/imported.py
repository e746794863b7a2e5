"""Definitions imported from other systems, which are not trusted at all.

A name that is not portable is mapped and the original kept; danger is medium unless annotations raise it; a
schema under any of the usual keys is read as it is, with its text sanitized. Author rules only warn. What is
not protected here: a tool that does something else than its description says. That is what policy, approval
and sandbox are for.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from toolkeep.definitions.definition_rules import refuse_problems
from toolkeep.definitions.moved_definitions import with_moved_definitions
from toolkeep.definitions.parameter import NO_PARAMETERS
from toolkeep.definitions.sanitize import Removal, sanitize_field, sanitize_schema
from toolkeep.definitions.tool import Source, SourceKind, ToolDefinition
from toolkeep.definitions.tool_names import portable_name
from toolkeep.definitions.vocabulary import Danger
from toolkeep.errors import Code, Problem
from toolkeep.json_values.frozen import FrozenDict, NotJson, freeze_object

SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema", "schema")
OUTPUT_KEYS = ("output_schema", "outputSchema")


class Imported(msgspec.Struct, frozen=True):
    """An imported definition, sanitized, with what was removed from its text."""

    definition: ToolDefinition
    removed: tuple[Removal, ...] = ()

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What was removed from its text."""
        return tuple(
            Problem(
                field=removal.place,
                code=Code.DEFINITION_INVALID,
                message=f"{'holds' if removal.is_left else 'held'} {removal.count} {removal.kind.value}",
                fix="the source should send text that a reader can see",
            )
            for removal in self.removed
        )


def definition_from_import(data: Mapping[str, Any], *, kind: SourceKind, origin: str) -> ToolDefinition:
    """A definition from another system's data: name, description, schema, annotations."""
    return import_definition(data, kind=kind, origin=origin).definition


def import_definition(
    data: Mapping[str, Any], *, kind: SourceKind, origin: str, name: str = "", **ours: Any
) -> Imported:
    """The same with what was removed from its text.

    `name` is the local name, if `choose_names` chose one; `ours` are fields that the operator decides.
    """
    original = data.get("name") if hasattr(data, "get") else None
    if not isinstance(original, str) or not original:
        problem = Problem(
            field="name", code=Code.DEFINITION_INVALID, message="is not text", fix="the source must name it"
        )
        refuse_problems(str(original), [problem])
    name = name or portable_name(str(original))
    description = data.get("description")
    words, removed = sanitize_field(description if isinstance(description, str) else "", "description")
    parameters, from_parameters = _schema(name, data, SCHEMA_KEYS)
    output_schema, from_output = _schema(name, data, OUTPUT_KEYS)
    definition = ToolDefinition(
        name=name,
        description=words,
        parameters=parameters or NO_PARAMETERS,
        output_schema=output_schema,
        source=Source(kind=kind, origin=origin, name="" if name == original else str(original)),
        **{"danger": _danger(data.get("annotations")), **ours},
    )
    return Imported(definition, (*removed, *from_parameters, *from_output))


def _schema(
    name: str, data: Mapping[str, Any], keys: tuple[str, ...]
) -> tuple[FrozenDict | None, list[Removal]]:
    found = next((data[key] for key in keys if data.get(key) is not None), None)
    if found is None:
        return None, []
    try:
        moved = with_moved_definitions(freeze_object(found, keys[0]))
        cleaned, removed = sanitize_schema(freeze_object(moved, keys[0]), keys[0])
        return freeze_object(cleaned, keys[0]), removed
    except NotJson as error:
        problem = Problem(
            field=error.path, code=Code.DEFINITION_INVALID, message=error.reason, fix="use JSON data only"
        )
        refuse_problems(name, [problem])
        raise


def _danger(annotations: object) -> Danger:
    """Annotations are the upstream's own claims: they may raise danger, never lower it (DEF-8).

    Otherwise an upstream would mark its own tool safe, and nobody would be asked.
    """
    if isinstance(annotations, Mapping) and annotations.get("destructiveHint") is True:
        return Danger.HIGH
    return Danger.MEDIUM
