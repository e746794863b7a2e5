"""Parse a definition from JSON data, and report every field that cannot be read at once.

The inverse of `ToolDefinition.to_dict`. `parameters` is a JSON Schema object or a list of parameters; the
order of properties is kept, because a model reads them in that order.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast, get_args

from toolkeep.definitions.capability import Capability
from toolkeep.definitions.constraints import Bounds, Constraints, NetworkBounds
from toolkeep.definitions.definition_rules import problems_of, refuse_problems
from toolkeep.definitions.parameter import NO_PARAMETERS, ToolParameter, parameters_schema, repeated
from toolkeep.definitions.tool import BY_HAND, KEYS, Source, SourceKind, ToolDefinition, unchecked_definition
from toolkeep.definitions.vocabulary import (
    Category,
    Danger,
    Determinism,
    Isolation,
    Normalization,
    ResultType,
    SideEffect,
)
from toolkeep.errors import Code, DefinitionInvalid, Problem
from toolkeep.json_values.frozen import FrozenDict, NotJson, freeze_object
from toolkeep.text.nearest import nearest_or_none

T = TypeVar("T")
D = TypeVar("D")

OTHER_SPELLINGS = {
    "danger_level": "danger",
    "normalisation": "normalization",
    "bounds": "resource_bounds",
    "effects": "side_effects",
}
_PLACES = {
    "isolation": "constraints.required_isolation",
    "required_isolation": "constraints.required_isolation",
    "timeout": "constraints.max_execution_time",
    "max_execution_time": "constraints.max_execution_time",
    "runs_on": "constraints.runs_on",
    "max_memory": "resource_bounds.max_memory",
}
"""Where a field is that people look for at the top."""


def definition_from_dict(data: Mapping[str, Any]) -> ToolDefinition:
    """Parse a definition for its registration, which reports all its problems together.

    `DefinitionInvalid` names each field that cannot be read, and then every broken rule. A definition whose
    fields can all be read may still break rules: nothing but registration may take it.
    """
    reader = _Reader(data, KEYS)
    definition = _definition(reader)
    if reader.problems:
        unread = {problem.field.partition("/")[0] for problem in reader.problems}
        broken_rules = problems_of(definition)[0] if reader.data else []
        more = [problem for problem in broken_rules if problem.field.partition("/")[0] not in unread]
        raise DefinitionInvalid(str(reader.data.get("name", "")), [*reader.problems, *more])
    return definition


def definition_by_author(data: Mapping[str, Any], problems: Sequence[Problem] = ()) -> ToolDefinition:
    """Parse a definition and check its rules at once; `problems` are those that the caller already found."""
    try:
        definition = definition_from_dict(data)
    except DefinitionInvalid as error:
        raise DefinitionInvalid(error.name, [*error.problems, *problems]) from None
    refuse_problems(definition.name, [*problems_of(definition)[0], *problems])
    return definition


class _Reader:
    """Reads an object field by field, and collects problems."""

    def __init__(self, data: object, keys: Sequence[str]) -> None:
        self.problems: list[Problem] = []
        self.data: dict[str, Any] = {}
        self._prefix = ""
        self._take(data, keys)

    def _take(self, data: object, keys: Sequence[str]) -> None:
        if not isinstance(data, Mapping):
            self.note("", f"expected an object, got {type(data).__name__}", "use an object")
            return
        for key, value in data.items():
            name = str(OTHER_SPELLINGS.get(key, key))
            if name not in keys:
                known = [*keys, *(short for short, field in OTHER_SPELLINGS.items() if field in keys)]
                meant = _PLACES.get(key) or nearest_or_none(str(key), known)
                fix = f"did you mean '{meant}'?" if meant else "use metadata for fields of your own"
                self.note(repr(str(key)[:64])[1:-1], "is unknown; fields are " + ", ".join(known), fix)
            # Two spellings of one field: whichever won, a reviewer could have read the other.
            elif name in self.data:
                self.note(name, "is given twice, under two spellings", "keep one of the two")
            else:
                self.data[name] = value

    def inside(self, field: str, *keys: str) -> "_Reader":
        """A reader for the object in one field; its problems are collected here."""
        reader = _Reader({}, keys)
        reader.problems, reader._prefix = self.problems, f"{self._prefix}{field}/"
        if self.data.get(field) is not None:
            reader._take(self.data[field], keys)
        return reader

    def note(self, field: str, message: str, fix: str) -> None:
        place = (self._prefix + field).rstrip("/")
        self.problems.append(Problem(field=place, code=Code.DEFINITION_INVALID, message=message, fix=fix))

    def read(self, field: str, read: Callable[[Any], T], default: T) -> T:
        """Parse one field; null and absent mean the default."""
        value = self.data.get(field)
        return default if value is None else self._try(field, read, value, default)

    def read_each(self, field: str, read: Callable[[Any], T]) -> tuple[T, ...] | None:
        """Parse a list item by item; None for null and absent."""
        value = self.data.get(field)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            self.note(field, f"expected a list, got {type(value).__name__}", "use a list")
            return None
        items = (self._try(f"{field}/{index}", read, item, None) for index, item in enumerate(value))
        return tuple(item for item in items if item is not None)

    def _try(self, field: str, read: Callable[[Any], T], value: object, default: D) -> T | D:
        try:
            return read(value)
        except NotJson as error:
            self.note(field + error.path, error.reason, "use JSON data only")
        except ValueError as error:
            self.note(field, str(error), "correct the value")
        return default


def _definition(reader: _Reader) -> ToolDefinition:
    return unchecked_definition(
        name=reader.read("name", _text, ""),
        description=reader.read("description", _text, ""),
        version=reader.read("version", _text, "1.0.0"),
        category=reader.read("category", Category.read, Category.GENERAL),
        parameters=_parameters(reader),
        output_schema=reader.read("output_schema", freeze_object, None),
        result_type=reader.read("result_type", ResultType.read, None),
        normalization=reader.read("normalization", Normalization.read, None),
        constraints=_constraints(reader),
        resource_bounds=_bounds(reader),
        required_permissions=reader.read_each("required_permissions", _text) or (),
        capabilities=reader.read_each("capabilities", Capability.read) or (),
        side_effects=_effects(reader),
        flow=reader.read("flow", freeze_object, FrozenDict()),
        determinism=reader.read("determinism", Determinism.read, None),
        idempotent=reader.read("idempotent", _boolean, default=False),
        danger=reader.read("danger", Danger.read, None),
        requires_confirmation=reader.read("requires_confirmation", _boolean, default=False),
        sensitive=reader.read("sensitive", _boolean, default=False),
        client_executed=reader.read("client_executed", _boolean, default=False),
        usage_metadata=reader.read("usage_metadata", _text, ""),
        enabled=reader.read("enabled", _boolean, default=True),
        aliases=reader.read_each("aliases", _text) or (),
        source=_source(reader),
        metadata=reader.read("metadata", freeze_object, FrozenDict()),
    )


def _parameters(reader: _Reader) -> FrozenDict:
    """A JSON Schema object, or a list of parameters."""
    if not isinstance(reader.data.get("parameters"), (list, tuple)):
        return reader.read("parameters", freeze_object, NO_PARAMETERS)
    listed = reader.read_each("parameters", ToolParameter.from_dict) or ()
    names = [parameter.name for parameter in listed]
    for name in repeated(names):
        reader.note("parameters", f"parameter {name!r} is defined twice", "give each its own name")
    return freeze_object(parameters_schema(tuple({p.name: p for p in listed}.values())))


def _effects(reader: _Reader) -> tuple[SideEffect, ...] | None:
    """A list of kinds, or one word: `effects: none`."""
    if isinstance(reader.data.get("side_effects"), str):
        stated = reader.read("side_effects", _effect_class, None)
        return None if stated is None else (stated,)
    return reader.read_each("side_effects", SideEffect.read)


def _effect_class(word: str) -> SideEffect:
    stated = SideEffect.read(word)
    if not stated.is_class:
        raise ValueError(
            f"{word!r} is a kind of effect: put it in a list; alone, write none, reads or writes"
        )
    return stated


def _constraints(reader: _Reader) -> Constraints:
    inside = reader.inside(
        "constraints",
        "max_execution_time",
        "max_output_size",
        "allow_side_effects",
        "required_isolation",
        "runs_on",
    )
    return Constraints(
        max_execution_time_s=inside.read("max_execution_time", _number, None),
        max_output_bytes=inside.read("max_output_size", _whole, None),
        allow_side_effects=inside.read("allow_side_effects", _boolean, default=True),
        required_isolation=inside.read("required_isolation", Isolation.read, None),
        runs_on=inside.read("runs_on", _text, None),
    )


def _bounds(reader: _Reader) -> Bounds:
    inside = reader.inside("resource_bounds", "max_memory", "max_cpu", "max_network")
    return Bounds(
        max_memory_bytes=inside.read("max_memory", _whole, None),
        max_cpu_cores=inside.read("max_cpu", _number, None),
        max_network=_network(inside),
    )


def _network(reader: _Reader) -> NetworkBounds | None:
    stated = reader.data.get("max_network")
    if stated is None:
        return None
    inside = reader.inside("max_network", "max_requests", "max_bytes")
    for field in ("max_requests", "max_bytes"):
        if isinstance(stated, Mapping) and stated.get(field) is None:
            inside.note(field, "is missing", "state both max_requests and max_bytes")
    return NetworkBounds(
        max_requests=inside.read("max_requests", _whole, 1), max_bytes=inside.read("max_bytes", _whole, 1)
    )


def _source(reader: _Reader) -> Source:
    inside = reader.inside("source", "kind", "origin", "name")
    return Source(
        kind=inside.read("kind", _source_kind, BY_HAND.kind),
        origin=inside.read("origin", _text, ""),
        name=inside.read("name", _text, ""),
    )


def _source_kind(value: object) -> SourceKind:
    for kind in get_args(SourceKind):
        if value == kind:
            return cast("SourceKind", kind)
    raise ValueError(f"{value!r} is not one of " + ", ".join(get_args(SourceKind)))


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
    if not -sys.float_info.max <= value <= sys.float_info.max:
        raise ValueError("expected a finite number")
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"expected a whole number, got {type(value).__name__}")
    return value
