"""A JSON Patch that would make a refused call valid, if a lossless fix is unambiguous.

It is offered, never applied: a tool must not run with arguments that nobody sent. The patch was tried on a
copy and found valid. Places with hidden values get no repair that would reveal them.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from jsonschema_rs import ValidationErrorKind as Kind

from toolkeep.json_values.frozen import thaw
from toolkeep.json_values.pointers import pointer, steps_of
from toolkeep.limits import MATCHED_CHARS
from toolkeep.text.nearest import intended_name, is_slip
from toolkeep.validation.compile import CompiledSchema
from toolkeep.validation.faults import Fault, Place, value_at
from toolkeep.validation.misplaced import home_of, inner_names
from toolkeep.validation.parse import NotStrictJson, parse_json_fully

Operation = dict[str, Any]

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?")
_NOTHING = ("null", "None")
_MOST_OPERATIONS = 10
"""A call with more faults was not a slip, and a long patch is no help."""


def repair_of(
    compiled: CompiledSchema,
    value: Any,
    faults: Sequence[Fault],
) -> tuple[Operation, ...] | None:
    """The patch, or None where no fix is certain."""
    operations = _all_operations(compiled, value, faults)
    if not operations:
        return None
    patched = apply_patch(value, operations)
    if patched is None or (any(map(_adds_values, operations)) and not compiled.affords(patched)):
        return None
    return tuple(operations) if compiled.is_valid(patched) else None


def _all_operations(compiled: CompiledSchema, value: Any, faults: Sequence[Fault]) -> list[Operation]:
    """The operations for all faults; none where one of them has no certain fix."""
    operations: list[Operation] = []
    for fault in faults:
        if isinstance(fault.kind, Kind.Required):
            continue  # a renamed property may be the missing one
        fixed = list(_operations(compiled, value, fault))
        operations += [operation for operation in fixed if operation not in operations]
        if not fixed or len(operations) > _MOST_OPERATIONS:
            return []
    return operations


def _adds_values(operation: Operation) -> bool:
    """Whether a string became an object or array, which may cost more to validate than the call did."""
    return isinstance(operation.get("value"), (dict, list))


def apply_patch(value: Any, operations: Sequence[Operation]) -> Any:
    """Apply `replace`, `move` and `remove` operations to a copy; None where one does not apply."""
    document = [thaw(value)]
    for operation in operations:
        try:
            target, key = _target(document, operation["path"])
            if operation["op"] == "move":
                source, old = _target(document, operation["from"])
                target[key] = source.pop(old)
            elif operation["op"] == "remove":
                del target[key]
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
    found = {repr(fixed): fixed for fixed in _replacements(fault, here, value)}
    if not found and _is_lone_item(compiled, fault, here):
        found = {"": [here]}
    if len(found) == 1:
        yield {"op": "replace", "path": pointer(fault.place), "value": next(iter(found.values()))}
    elif not found and _says_nothing(here) and fault.place and isinstance(fault.place[-1], str):
        yield {"op": "remove", "path": pointer(fault.place)}
    elif not found and isinstance(fault.kind, (Kind.AnyOf, Kind.OneOfNotValid)):
        fixes = [_all_operations(compiled, value, branch) for branch in fault.alternatives(value)]
        certain = [fixed for fixed in fixes if fixed]
        yield from certain[0] if certain and all(one == certain[0] for one in certain) else ()


def _is_lone_item(compiled: CompiledSchema, fault: Fault, value: object) -> bool:
    """Whether an object is given for a list of such objects."""
    is_list_wanted = isinstance(fault.kind, Kind.Type) and "array" in fault.kind.types
    known = compiled.locator.names_at((*fault.place, 0)) if is_list_wanted else {}
    return isinstance(value, dict) and bool(value) and value.keys() <= known.keys()


def _says_nothing(value: object) -> bool:
    """Whether a property with this value is best left out, where neither null nor text is accepted."""
    return value is None or value in _NOTHING


def _renames(compiled: CompiledSchema, value: Any, fault: Fault) -> Iterator[Operation]:
    if compiled.secrecy.hides_schema(fault.place):
        return
    given = value_at(value, fault.place)
    known = compiled.locator.names_at(fault.place, given)
    required = compiled.locator.required_at(fault.place, given)
    free = [name for name in known if name not in given]
    unexpected = getattr(fault.kind, "unexpected", ())
    for name in unexpected if len(unexpected) <= _MOST_OPERATIONS else ():
        place = pointer((*fault.place, name))
        if name in known:
            continue
        if given[name] is None:
            yield {"op": "remove", "path": place}
            continue
        if inner := inner_names(given[name], free):
            for one in inner:
                free.remove(one)
                yield {
                    "op": "move",
                    "from": pointer((*fault.place, name, one)),
                    "path": pointer((*fault.place, one)),
                }
            yield {"op": "remove", "path": place}
            continue
        if home := home_of(compiled.locator, value, (*fault.place, name)):
            yield {"op": "move", "from": place, "path": pointer(home)}
            continue
        missing = [one for one in free if one in required]
        meant = intended_name(name, missing, free)
        # A required property is wanted for sure, so that one with the same words is the one; the spelling of
        # others must be a sure slip, since `start_x` may mean another thing than `start_y`.
        if meant is not None and (meant in missing or is_slip(name, meant)):
            free.remove(meant)
            yield {"op": "move", "from": place, "path": pointer((*fault.place, meant))}


def _replacements(fault: Fault, value: Any, call: Any) -> Iterator[Any]:
    """Every value of an accepted type that means the same as the wrong one."""
    kind = fault.kind
    if isinstance(kind, Kind.Type):
        for name in kind.types:
            if name in _CONVERSIONS:
                yield from _CONVERSIONS[name](value)
        yield from _wrapped(value, fault.place[-1:])
    elif isinstance(kind, Kind.Enum):
        yield from _same_word(value, kind.options)
    elif isinstance(kind, Kind.Constant):
        yield from _same_word(value, [kind.expected_value])
    elif isinstance(kind, (Kind.AnyOf, Kind.OneOfNotValid)):
        for branch in fault.alternatives(call):
            if len(branch) == 1 and branch[0].place == fault.place:
                yield from _replacements(branch[0], value, call)


def _wrapped(value: Any, name: Place) -> list[Any]:
    """The one value in a list, or in an object that only repeats the property's name."""
    if isinstance(value, dict) and (*value,) in (name, ("value",)):
        return [*value.values()]
    return value if isinstance(value, list) and len(value) == 1 else []


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
    if value in _NOTHING:
        yield None


def _string(value: object) -> Iterator[str]:
    if value.__class__ is int:
        yield str(value)


def _container(kind: type) -> Callable[[object], Iterator[Any]]:
    def convert(value: object) -> Iterator[Any]:
        if not isinstance(value, str) or len(value) > MATCHED_CHARS:
            return
        text = value.strip()
        for written in (text, _from_python(text)):
            try:
                parsed = parse_json_fully(written.encode(), depth=20) if written[:1] in ("[", "{") else None
            except NotStrictJson:
                continue
            if isinstance(parsed, kind):
                yield parsed
                return

    return convert


def _from_python(text: str) -> str:
    """The JSON of a list, tuple or dict written in Python; empty where it is not surely one."""
    if text[:1] == "(" and "," not in text:
        return ""  # a value in parentheses
    written: list[str] = []
    end = 0
    while end < len(text):
        token = _PYTHON_TOKEN.match(text, end)
        if token is None:
            return ""
        word, end = token[1], token.end()
        if word in _JSON_OF and _JSON_OF[word] in ("]", "}") and written[-1:] == [","]:
            written.pop()
        written.append(_JSON_OF.get(word) or (json.dumps(word[1:-1]) if word[0] in "\"'" else word))
    return "".join(written)


_PYTHON_TOKEN = re.compile(
    r"""\s*('[^'\\\n]*'|"[^"\\\n]*"|True|False|None|-?[0-9]+(?:\.[0-9]+)?|[\[\](){},:])\s*"""
)
"""No escapes: what they stand for differs between Python and JSON."""
_JSON_OF = {"True": "true", "False": "false", "None": "null", "(": "[", ")": "]"} | {m: m for m in "[]{},:"}

_CONVERSIONS: dict[str, Callable[[Any], Iterator[Any]]] = {
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "null": _null,
    "string": _string,
    "array": _container(list),
    "object": _container(dict),
}
