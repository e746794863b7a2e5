"""Collect what the engine objects to in a refused call, with bounded work at any size (VAL-5, VAL-7).

The engine collects errors eagerly, at about 10 µs each including the report. A large call is therefore
searched part by part; where a part cannot be split, its first error stands for it, or only its place. All
parts share one budget: fifty parts that were each within a budget of their own took seconds.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import jsonschema_rs
import msgspec
from jsonschema_rs import ValidationErrorKind as Kind

from toolkeep.json_values.pointers import look_up
from toolkeep.limits import FIRST_ERROR_WORK, REPORT_WORK
from toolkeep.validation.close_objects import COMPOSERS
from toolkeep.validation.compile import CompiledSchema
from toolkeep.validation.schema_engine import compile_schema
from toolkeep.validation.schema_keywords import Schema

Place = tuple["str | int", ...]

_SEARCH_DEPTH = 3
"""Levels at which a large call is split. Each level validates its values once more."""

_LENGTHS = ("minProperties", "maxProperties")


class Fault(msgspec.Struct, frozen=True):
    """One error of the engine: its place and its structured kind."""

    place: Place
    kind: Kind | None
    """None where finding it would take too long."""
    base: Place = ()
    """Where the searched part begins; the places inside `kind` are relative to it."""

    def alternatives(self, value: Any) -> "list[list[Fault]]":
        """The faults of each alternative of the call `value`, for `anyOf` and `oneOf`."""
        branches = getattr(self.kind, "context", ())
        part = value_at(value, self.base) if branches else None
        return [[_fault(error, part, self.base) for error in branch] for branch in branches]


def value_at(value: Any, place: Place) -> Any:
    """The value at a place of the call."""
    for step in place:
        value = value[step]
    return value


def _fault(error: Any, part: Any, base: Place) -> Fault:
    """An error of the engine about the part of the call at `base`."""
    path = error.instance_path
    if any(step.__class__ is int for step in path):
        path = _with_names(path, part)
    return Fault((*base, *path), error.kind, base)


def _with_names(path: Sequence["str | int"], value: Any) -> Place:
    """The engine's path with property names where it has integers: `"404"` comes as 404, `"+04"` as 4."""
    steps: list[str | int] = []
    for step in path:
        if isinstance(step, int) and isinstance(value, dict):
            names = (key for key in value if (key.removeprefix("+").lstrip("0") or "0") == str(step))
            step = str(step) if str(step) in value else next(names, str(step))  # noqa: PLW2901
        steps.append(step)
        value = value[step]
    return tuple(steps)


def find_faults(compiled: CompiledSchema, value: Any, *, limit: int, weight: float = math.inf) -> list[Fault]:
    """The faults of an invalid call: at least one, at most about `limit`.

    `weight` is an upper bound of the value's weight where one is known: the bytes of its text.
    """
    search = _Search(compiled, limit, weight)
    search.look(compiled.schema, compiled.validator, value, (), _SEARCH_DEPTH)
    if not search.faults:
        search.first(compiled.validator, value, ())
    return search.faults


def first_fault(compiled: CompiledSchema, value: Any) -> list[Fault]:
    """One fault of an invalid call."""
    search = _Search(compiled, 1)
    search.first(compiled.validator, value, ())
    return search.faults


_CHARS_PER_VALUE = 64
"""Characters that cost as much to copy into an error as one more value."""


def weigh(value: Any, limit: int) -> int:
    """How much an error about the value copies, in values, counted up to `limit`."""
    total = 1
    stack = [value]
    while stack and total <= limit:
        here = stack.pop()
        if here.__class__ is dict:
            total += 2 * len(here) + sum(map(len, here)) // _CHARS_PER_VALUE
            stack.extend(here.values())
        elif here.__class__ is list:
            total += len(here)
            stack.extend(here)
        elif here.__class__ is str:
            total += len(here) // _CHARS_PER_VALUE
    return total


class _Search:
    def __init__(self, compiled: CompiledSchema, limit: int, weight: float = math.inf) -> None:
        self.compiled = compiled
        self.limit = limit
        self.weight = weight
        self.faults: list[Fault] = []
        self._errors_left = REPORT_WORK
        self._values_left = FIRST_ERROR_WORK

    def look(
        self,
        part: Schema,
        validator: jsonschema_rs.Validator,
        value: Any,
        place: Place,
        depth: int,
    ) -> None:
        """Collect the faults of the value at one place."""
        if (errors := self._most_errors(value)) <= self._errors_left:
            before = len(self.faults)
            self._collect(validator, value, place)
            # An error about alternatives holds the errors of each of them, which were not counted.
            found = len(self.faults) - before
            self._errors_left -= errors if self.compiled.cost.has_alternatives else found
            return
        shape = _simple(part, self.compiled.schema)
        if depth and isinstance(value, dict) and _is_simple_object(shape):
            self._collect_object(shape, value, place)
            self._look_inside(_members(shape, value), place, depth)
        elif depth and isinstance(value, list) and isinstance(shape.get("items"), dict) and _is_simple(shape):
            self._collect_array(shape, value, place)
            self._look_inside(((i, item, shape["items"]) for i, item in enumerate(value)), place, depth)
        else:
            self.first(validator, value, place)

    def _most_errors(self, value: Any) -> int:
        """An upper bound of the errors of a value, counted up to the rest of the budget."""
        each = self.compiled.cost.errors
        affordable = self._errors_left // each
        if self.weight <= affordable:  # no part weighs more than the whole, so no count is needed
            return each * int(self.weight)
        return each * weigh(value, affordable)

    def _look_inside(
        self, members: Iterator[tuple["str | int", Any, dict[str, Any]]], place: Place, depth: int
    ) -> None:
        for step, value, part in members:
            if len(self.faults) >= self.limit:
                return
            validator = self.compiled.part(part)
            if not validator.is_valid(value):
                self.look(part, validator, value, (*place, step), depth - 1)

    def _collect(self, validator: jsonschema_rs.Validator, value: Any, place: Place) -> None:
        for error in islice(validator.iter_errors(value), 2 * self.limit):
            self.faults.append(_fault(error, value, place))

    def _collect_object(self, shape: dict[str, Any], value: dict[str, Any], place: Place) -> None:
        """The faults of a large object itself, found on small objects with the same faults: the engine copies
        an object into every error about it."""
        dialect, most = self.compiled.dialect, 2 * self.limit
        missing = _missing(shape, value, most)
        self._collect(compile_schema(missing, dialect), dict.fromkeys(missing["dependentRequired"]), place)
        lengths = {key: shape[key] for key in _LENGTHS if key in shape}
        if lengths:
            self._collect(compile_schema(lengths, dialect), dict.fromkeys(value), place)
        if "propertyNames" in shape:
            naming = self.compiled.compile_part({"propertyNames": shape["propertyNames"]})
            misnamed = ({name: None} for name in value if not naming.is_valid({name: None}))
            for one in islice(misnamed, most):
                self._collect(naming, one, place)
        known = shape.get("properties", {})
        unlisted = islice((name for name in value if name not in known), most)
        names = dict.fromkeys((*(name for name in known if name in value), *unlisted))
        self._collect(_listing(shape, self.compiled), names, place)

    def _collect_array(self, shape: dict[str, Any], value: list[Any], place: Place) -> None:
        """The faults of a large array itself, found on a small array with the same faults: the engine copies
        the value into the error."""
        lengths: dict[str, Any] = {key: shape[key] for key in ("minItems", "maxItems") if key in shape}
        self._collect(compile_schema(lengths, self.compiled.dialect), [None] * len(value), place)
        if shape.get("uniqueItems"):
            unique = compile_schema({"uniqueItems": True}, self.compiled.dialect)
            if not unique.is_valid(value):
                self._collect(unique, [None, None], place)

    def first(self, validator: jsonschema_rs.Validator, value: Any, place: Place) -> None:
        """The first error only, or only the place where even that would take long."""
        if not self._affords_first(value):
            self.faults.append(Fault(place, None, place))
            return
        try:
            validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            self.faults.append(_fault(error, value, place))

    def _affords_first(self, value: Any) -> bool:
        """Whether the first error is within the budget: the engine copies the value into it and, with
        alternatives, into the errors of each."""
        if self.compiled.cost.has_alternatives:
            errors = self._most_errors(value)
            if errors > self._errors_left:
                return False
            self._errors_left -= errors
            return True
        values = self.compiled.cost.errors * weigh(value, self._values_left // self.compiled.cost.errors)
        if values > self._values_left:
            return False
        self._values_left -= values
        return True


def _simple(part: Schema, root: dict[str, Any]) -> dict[str, Any]:
    """The schema behind bare references."""
    for _ in range(10):
        if not isinstance(part, dict):
            return {}
        if "$ref" not in part or "properties" in part:
            return part
        part = look_up(root, part["$ref"][1:])
    return {}


def _is_simple(part: dict[str, Any]) -> bool:
    return not any(keyword in part for keyword in (*COMPOSERS, "not", "contains", "prefixItems"))


def _is_simple_object(part: dict[str, Any]) -> bool:
    if not _is_simple(part) or "patternProperties" in part or "unevaluatedProperties" in part:
        return False
    return "properties" in part or isinstance(part.get("additionalProperties"), dict)


def _members(
    part: dict[str, Any], value: dict[str, Any]
) -> Iterator[tuple["str | int", Any, dict[str, Any]]]:
    known = part.get("properties", {})
    others = part.get("additionalProperties")
    for name, schema in known.items():
        if name in value and isinstance(schema, dict):
            yield name, value[name], schema
    if isinstance(others, dict):
        yield from ((name, inside, others) for name, inside in value.items() if name not in known)


def _missing(part: dict[str, Any], value: dict[str, Any], most: int) -> dict[str, Any]:
    """What an object's schema requires and the object lacks, at most about `most` of each kind."""
    required = islice((name for name in part.get("required", ()) if name not in value), most)
    dependent: dict[str, list[str]] = {}
    for name, needs in part.get("dependentRequired", {}).items():
        lacking = [need for need in needs if need not in value] if name in value else []
        if lacking and most > 0:
            dependent[name] = lacking[:most]
            most -= len(lacking)
    return {"required": list(required), "dependentRequired": dependent}


def _listing(part: dict[str, Any], compiled: CompiledSchema) -> jsonschema_rs.Validator:
    """A validator for the property names that a schema lists, without their values."""
    names = {name: schema is not False for name, schema in part.get("properties", {}).items()}
    others = part.get("additionalProperties", not compiled.closes_objects)
    listing = {"properties": names, "additionalProperties": others if isinstance(others, bool) else True}
    return compile_schema(listing, compiled.dialect)
