"""A JSON Patch that would make a refused call valid, if a lossless fix is unambiguous.

It is offered, never applied: a tool must not run with arguments that nobody sent. The patch was tried on a
copy and found valid. Places with hidden values get no repair that would reveal them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from jsonschema_rs import ValidationErrorKind as Kind

from toolkeep.json_values.frozen import thaw
from toolkeep.json_values.pointers import pointer, steps_of
from toolkeep.limits import MATCHED_CHARS
from toolkeep.text.nearest import is_slip, nearest_or_none
from toolkeep.validation.compile import CompiledSchema
from toolkeep.validation.faults import Fault
from toolkeep.validation.parse import NotStrictJson, parse_json_fully
from toolkeep.validation.report import value_at

Operation = dict[str, Any]

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?")
_MOST_OPERATIONS = 10
"""A call with more faults was not a slip, and a long patch is no help."""


def repair_of(
    compiled: CompiledSchema,
    value: Any,
    faults: Sequence[Fault],
) -> tuple[Operation, ...] | None:
    """The patch, or None where no fix is certain."""
    if len(faults) > _MOST_OPERATIONS:
        return None
    operations: list[Operation] = []
    for fault in faults:
        if isinstance(fault.kind, Kind.Required):
            continue  # a renamed property may be the missing one
        mended = list(_operations(compiled, value, fault))
        if not mended:
            return None
        operations += [operation for operation in mended if operation not in operations]
    if not operations:
        return None
    patched = apply_patch(value, operations)
    if patched is None or (any(map(_adds_values, operations)) and not compiled.affords(patched)):
        return None
    return tuple(operations) if compiled.is_valid(patched) else None


def _adds_values(operation: Operation) -> bool:
    """Whether a string became an object or array, which may cost more to validate than the call did."""
    return isinstance(operation.get("value"), (dict, list))


def apply_patch(value: Any, operations: Sequence[Operation]) -> Any:
    """Apply `replace` and `move` operations to a copy of the value; None where one does not apply."""
    document = [thaw(value)]
    for operation in operations:
        try:
            target, key = _target(document, operation["path"])
            if operation["op"] == "move":
                source, old = _target(document, operation["from"])
                target[key] = source.pop(old)
            else:
                target[key] = operation["value"]
        except (KeyError, IndexError, TypeError):
            return None
    return document[0]


def _target(document: list[Any], path: str) -> tuple[Any, Any]:
    """The container and key that a pointer addresses."""
    here: Any = document
    steps = ["0", *steps_of(path)]
    for index, step in enumerate(steps):
        key: Any = int(step) if isinstance(here, list) else step
        if index == len(steps) - 1:
            return here, key
        here = here[key]
    return document, 0


def _operations(compiled: CompiledSchema, value: Any, fault: Fault) -> Iterator[Operation]:
    if isinstance(fault.kind, (Kind.AdditionalProperties, Kind.UnevaluatedProperties)):
        yield from _renames(compiled, value, fault)
        return
    if compiled.secrecy.hides_value(fault.place):
        return
    here = value_at(value, fault.place)
    found = {repr(fixed): fixed for fixed in _replacements(fault, here)}
    if len(found) == 1:
        yield {"op": "replace", "path": pointer(fault.place), "value": next(iter(found.values()))}


def _renames(compiled: CompiledSchema, value: Any, fault: Fault) -> Iterator[Operation]:
    if compiled.secrecy.hides_schema(fault.place):
        return
    known = compiled.locator.names_at(fault.place)
    given = value_at(value, fault.place)
    free = [name for name in known if name not in given]
    unexpected = getattr(fault.kind, "unexpected", ())
    for name in unexpected if len(unexpected) <= _MOST_OPERATIONS else ():
        near = nearest_or_none(name, free) if name not in known else None
        if near is not None and is_slip(name, near):
            free.remove(near)
            yield {
                "op": "move",
                "from": pointer((*fault.place, name)),
                "path": pointer((*fault.place, near)),
            }


def _replacements(fault: Fault, value: Any) -> Iterator[Any]:
    """Every value of an accepted type that means the same as the wrong one."""
    kind = fault.kind
    if isinstance(kind, Kind.Type):
        for name in kind.types:
            if name in _CONVERSIONS:
                yield from _CONVERSIONS[name](value)
    elif isinstance(kind, Kind.Enum):
        yield from _same_word(value, kind.options)
    elif isinstance(kind, Kind.Constant):
        yield from _same_word(value, [kind.expected_value])
    elif isinstance(kind, (Kind.AnyOf, Kind.OneOfNotValid)):
        for branch in fault.alternatives():
            if len(branch) == 1 and branch[0].place == fault.place:
                yield from _replacements(branch[0], value)


def _same_word(value: object, options: Sequence[Any]) -> Iterator[Any]:
    if isinstance(value, str):
        same: list[Any] = [o for o in options if isinstance(o, str) and o.lower() == value.lower()]
        same += [o for o in options if o.__class__ in (int, bool) and str(o).lower() == value.lower()]
        if len(same) == 1:
            yield same[0]


def _integer(value: object) -> Iterator[int]:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        yield int(value)


def _number(value: object) -> Iterator[float]:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        number = int(value) if _INTEGER.fullmatch(value) else float(value)
        if Decimal(value) == Decimal(repr(number)):
            yield number


def _boolean(value: object) -> Iterator[bool]:
    if isinstance(value, str) and value.casefold() in ("true", "false"):
        yield value.casefold() == "true"


def _null(value: object) -> Iterator[None]:
    if value == "null":
        yield None


def _string(value: object) -> Iterator[str]:
    if value.__class__ is int:
        yield str(value)


def _container(kind: type) -> Callable[[object], Iterator[Any]]:
    def convert(value: object) -> Iterator[Any]:
        if isinstance(value, str) and len(value) <= MATCHED_CHARS and value.lstrip()[:1] in ("[", "{"):
            try:
                parsed = parse_json_fully(value.encode(), depth=20)
            except NotStrictJson:
                return
            if isinstance(parsed, kind):
                yield parsed

    return convert


_CONVERSIONS: dict[str, Callable[[Any], Iterator[Any]]] = {
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "null": _null,
    "string": _string,
    "array": _container(list),
    "object": _container(dict),
}
