"""Definitions taken over from other systems, which are trusted with nothing.

A name that is not portable is mapped and the original kept; danger is medium unless annotations raise it;
a schema under any of the usual keys is read as it is, with its words cleaned. The rules for authors only warn
about these.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from toolkeep.definitions.check import refuse_problems
from toolkeep.definitions.cleaning import Removal, clean_field, clean_schema
from toolkeep.definitions.frozen import FrozenDict, NotJson, freeze_object
from toolkeep.definitions.names import portable_name
from toolkeep.definitions.parameter import NO_PARAMETERS
from toolkeep.definitions.suspicion import Suspicion, held_back_for, suspicions_of
from toolkeep.definitions.tool import Source, SourceKind, ToolDefinition
from toolkeep.definitions.vocabulary import Danger
from toolkeep.errors import Code, Problem

SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema", "schema")
OUTPUT_KEYS = ("output_schema", "outputSchema")


class Imported(msgspec.Struct, frozen=True):
    """A definition from elsewhere, cleaned, with what was found in its words."""

    definition: ToolDefinition
    removed: tuple[Removal, ...] = ()

    @property
    def suspicions(self) -> tuple[Suspicion, ...]:
        """What a person should look at; read anew each time."""
        return suspicions_of(self.definition, self.removed)

    @property
    def held_back(self) -> str:
        """Why a person must look at it first; empty where nothing was found."""
        return held_back_for(self.suspicions)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What was taken out of its words."""
        return tuple(
            Problem(
                field=removal.place,
                code=Code.DEFINITION_INVALID,
                message=f"{'holds' if removal.is_left else 'held'} {removal.count} {removal.kind.value}",
                mend="the source should send text that a reader can see",
            )
            for removal in self.removed
        )


def definition_from_elsewhere(data: Mapping[str, Any], *, kind: SourceKind, origin: str) -> ToolDefinition:
    """A definition from another system's data: name, description, a schema, annotations."""
    return import_definition(data, kind=kind, origin=origin).definition


def import_definition(data: Mapping[str, Any], *, kind: SourceKind, origin: str, name: str = "") -> Imported:
    """The same with what was found in its words; `name` is ours for it, where `choose_names` chose one."""
    original = data.get("name") if hasattr(data, "get") else None
    if not isinstance(original, str) or not original:
        problem = Problem(
            field="name", code=Code.DEFINITION_INVALID, message="is not text", mend="the source must name it"
        )
        refuse_problems(str(original), [problem])
    name = name or portable_name(str(original))
    description = data.get("description")
    words, removed = clean_field(description if isinstance(description, str) else "", "description")
    parameters, from_parameters = _schema(name, data, SCHEMA_KEYS)
    output_schema, from_output = _schema(name, data, OUTPUT_KEYS)
    definition = ToolDefinition(
        name=name,
        description=words,
        parameters=parameters or NO_PARAMETERS,
        output_schema=output_schema,
        danger=_danger(data.get("annotations")),
        source=Source(kind=kind, origin=origin, name="" if name == original else str(original)),
    )
    return Imported(definition, (*removed, *from_parameters, *from_output))


def _schema(
    name: str, data: Mapping[str, Any], keys: tuple[str, ...]
) -> tuple[FrozenDict | None, list[Removal]]:
    found = next((data[key] for key in keys if data.get(key) is not None), None)
    if found is None:
        return None, []
    try:
        cleaned, removed = clean_schema(freeze_object(found, keys[0]), keys[0])
        return freeze_object(cleaned, keys[0]), removed
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
