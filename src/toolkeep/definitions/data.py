"""A definition as JSON data, both ways, with nothing lost and the order of properties kept.

`parameters` is a JSON Schema object or a list of parameters. What equals its default is left out, so that
a definition keeps its hash when toolkeep learns a new field.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from toolkeep.definitions.capability import Capability
from toolkeep.definitions.check import refuse_problems
from toolkeep.definitions.constraints import Bounds, Constraints, NetworkBounds
from toolkeep.definitions.frozen import FrozenDict, NotJson, freeze_object, thaw
from toolkeep.definitions.parameter import ToolParameter, parameters_schema
from toolkeep.definitions.tool import BY_HAND, Source, ToolDefinition
from toolkeep.definitions.vocabulary import (
    Category,
    Danger,
    Determinism,
    Isolation,
    Normalization,
    ResultType,
    SideEffect,
)
from toolkeep.errors import Code, Problem

T = TypeVar("T")

KEYS = (
    "name", "description", "version", "category", "parameters", "output_schema", "result_type",
    "normalization", "constraints", "resource_bounds", "required_permissions", "capabilities",
    "side_effects", "determinism", "idempotent", "danger", "requires_confirmation", "sensitive",
    "client_executed", "usage_metadata", "enabled", "aliases", "source", "metadata",
)  # fmt: skip

OTHER_SPELLINGS = {"danger_level": "danger", "normalisation": "normalization", "bounds": "resource_bounds"}


def definition_to_dict(definition: ToolDefinition) -> dict[str, Any]:
    """JSON data in the order of `KEYS`."""
    data: dict[str, Any] = {
        "name": definition.name,
        "description": definition.description,
        "version": definition.version,
        "category": definition.category.value,
        "parameters": thaw(definition.parameters),
        "output_schema": thaw(definition.output_schema),
        "result_type": definition.result_type and definition.result_type.value,
        "normalization": definition.normalization and definition.normalization.value,
        "constraints": definition.constraints.to_dict(),
        "resource_bounds": definition.resource_bounds.to_dict(),
        "required_permissions": list(definition.required_permissions),
        "capabilities": [str(capability) for capability in definition.capabilities],
        "side_effects": None
        if definition.side_effects is None
        else [effect.value for effect in definition.side_effects],
        "determinism": definition.determinism and definition.determinism.value,
        "idempotent": definition.idempotent,
        "danger": definition.danger and definition.danger.value,
        "requires_confirmation": definition.requires_confirmation,
        "sensitive": definition.sensitive,
        "client_executed": definition.client_executed,
        "usage_metadata": definition.usage_metadata,
        "enabled": definition.enabled,
        "aliases": list(definition.aliases),
        "source": _source_to_dict(definition.source),
        "metadata": thaw(definition.metadata),
    }
    always = ("name", "description", "version", "category", "parameters")
    return {key: data[key] for key in KEYS if key in always or not _is_default(key, data[key])}


def _is_default(key: str, value: object) -> bool:
    if key == "enabled":
        return value is True
    if key == "side_effects":
        return value is None
    return value in (None, False, "", [], {})


def _source_to_dict(source: Source) -> dict[str, str]:
    if source == BY_HAND:
        return {}
    stated = {"kind": source.kind, "origin": source.origin, "name": source.name}
    return {key: value for key, value in stated.items() if value}


def definition_from_dict(data: Mapping[str, Any]) -> ToolDefinition:
    """A definition from data; `DefinitionInvalid` names every field that cannot be read."""
    reader = _Reader(data)
    definition = reader.definition()
    refuse_problems(str(reader.data.get("name", "")), reader.problems)
    return definition


class _Reader:
    """Reads field after field, noting each problem and going on."""

    def __init__(self, data: object) -> None:
        self.problems: list[Problem] = []
        self.data: dict[str, Any] = {}
        if not isinstance(data, Mapping):
            self.note(
                "", f"a definition is an object, not {type(data).__name__}", "give name and description"
            )
            return
        for key, value in data.items():
            name = OTHER_SPELLINGS.get(key, key)
            if name in KEYS:
                self.data[name] = value
            else:
                self.note(str(key), "unknown field", "use metadata for fields of your own")

    def note(self, field: str, message: str, mend: str) -> None:
        self.problems.append(Problem(field=field, code=Code.DEFINITION_INVALID, message=message, mend=mend))

    def read(self, field: str, read: Callable[[Any], T], default: T) -> T:
        """One field through its reader; null and absent mean the default."""
        value = self.data.get(field)
        if value is None:
            return default
        try:
            return read(value)
        except NotJson as error:
            self.note(error.path, error.reason, "use JSON data only")
        except ValueError as error:
            self.note(field, str(error), "correct the value")
        return default

    def definition(self) -> ToolDefinition:
        return ToolDefinition(
            name=self.read("name", _text, ""),
            description=self.read("description", _text, ""),
            version=self.read("version", _text, "1.0.0"),
            category=self.read("category", Category.read, Category.GENERAL),
            parameters=self.read("parameters", _parameters, _parameters([])),
            output_schema=self.read("output_schema", _schema, None),
            result_type=self.read("result_type", ResultType.read, None),
            normalization=self.read("normalization", Normalization.read, None),
            constraints=self.read("constraints", _constraints, Constraints()),
            resource_bounds=self.read("resource_bounds", _bounds, Bounds()),
            required_permissions=self.read("required_permissions", _texts, ()),
            capabilities=self.read("capabilities", lambda v: tuple(map(Capability.read, _list(v))), ()),
            side_effects=self.read("side_effects", lambda v: tuple(map(SideEffect.read, _list(v))), None),
            determinism=self.read("determinism", Determinism.read, None),
            idempotent=self.read("idempotent", _boolean, default=False),
            danger=self.read("danger", Danger.read, None),
            requires_confirmation=self.read("requires_confirmation", _boolean, default=False),
            sensitive=self.read("sensitive", _boolean, default=False),
            client_executed=self.read("client_executed", _boolean, default=False),
            usage_metadata=self.read("usage_metadata", _text, ""),
            enabled=self.read("enabled", _boolean, default=True),
            aliases=self.read("aliases", _texts, ()),
            source=self.read("source", _source, BY_HAND),
            metadata=self.read("metadata", _metadata, FrozenDict()),
        )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, got {type(value).__name__}")
    return value


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, got {type(value).__name__}")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"expected a number, got {type(value).__name__}")
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"expected a whole number, got {type(value).__name__}")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"expected a list, got {type(value).__name__}")
    return list(value)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(_text, _list(value)))


def _schema(value: object) -> FrozenDict | None:
    return freeze_object(value, "output_schema")


def _metadata(value: object) -> FrozenDict:
    return freeze_object(value, "metadata")


def _parameters(value: object) -> FrozenDict:
    if isinstance(value, (list, tuple)):
        listed = [ToolParameter.from_dict(item) for item in map(_mapping, value)]
        return freeze_object(parameters_schema(listed), "parameters")
    return freeze_object(value, "parameters")


def _mapping(value: object, *allowed: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"expected an object, got {type(value).__name__}")
    if allowed and (unknown := sorted(set(value) - set(allowed))):
        raise ValueError(f"unknown key {unknown[0]!r}; allowed are " + ", ".join(allowed))
    return value


def _optional(value: object, read: Callable[[Any], T]) -> T | None:
    return None if value is None else read(value)


def _constraints(value: object) -> Constraints:
    given = _mapping(
        value, "max_execution_time", "max_output_size", "allow_side_effects", "required_isolation"
    )
    allow = given.get("allow_side_effects")
    return Constraints(
        max_execution_time_s=_optional(given.get("max_execution_time"), _number),
        max_output_bytes=_optional(given.get("max_output_size"), _whole),
        allow_side_effects=True if allow is None else _boolean(allow),
        required_isolation=_optional(given.get("required_isolation"), Isolation.read),
    )


def _bounds(value: object) -> Bounds:
    given = _mapping(value, "max_memory", "max_cpu", "max_network")
    return Bounds(
        max_memory_bytes=_optional(given.get("max_memory"), _whole),
        max_cpu_cores=_optional(given.get("max_cpu"), _number),
        max_network=_optional(given.get("max_network"), _network),
    )


def _network(value: object) -> NetworkBounds:
    given = _mapping(value, "max_requests", "max_bytes")
    return NetworkBounds(
        max_requests=_whole(given.get("max_requests")), max_bytes=_whole(given.get("max_bytes"))
    )


def _source(value: object) -> Source:
    given = _mapping(value, "kind", "origin", "name")
    kind = given.get("kind", "hand")
    if kind not in ("hand", "mcp", "openapi", "import"):
        raise ValueError(f"kind {kind!r} is not one of hand, mcp, openapi, import")
    return Source(kind=kind, origin=_text(given.get("origin", "")), name=_text(given.get("name", "")))
