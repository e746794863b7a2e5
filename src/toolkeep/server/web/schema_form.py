"""A form from a JSON Schema, and arguments from a form.

The schema comes with its secret parts removed; each field stands for one place in the arguments. What a field
cannot express becomes a JSON field. Nothing is coerced: invalid numbers are sent as typed, and validation
says what is wrong.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

import jiter
import msgspec

from toolkeep.definitions.secret_subschemas import has_reference, has_secret
from toolkeep.json_values.pointers import escaped, steps_of
from toolkeep.server.web.web_request import Form
from toolkeep.validation.signature_hint import describe

Kind = Literal["text", "long", "number", "choice", "flag", "json", "secret"]

PREFIX: Final = "at:"
"""What the name of a field begins with; the JSON Pointer of its place follows."""
_DEPTH: Final = 3
"""Nesting up to which an object gets a field for each property; a deeper one is one field of JSON."""
_LONG: Final = frozenset(
    ("content", "contents", "text", "body", "message", "new_content", "old_content", "query")
)
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
_MOST_FIELDS: Final = 100
"""Fields of a form, so that a generated schema cannot make a page of thousands; arguments beyond them can be
given as JSON."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One place in the arguments."""

    pointer: str
    name: str
    kind: Kind
    type: str
    """In words: `integer ≥ 1`."""
    description: str = ""
    is_required: bool = False
    choices: tuple[Any, ...] = ()
    default: Any = msgspec.UNSET
    group: str = ""
    """The object that it belongs to."""
    is_secret: bool = False
    """Whether something in it is: then what was typed is sent once, and never comes back."""

    @property
    def id(self) -> str:
        """An HTML id; pointers may contain any character."""
        return "field-" + self.pointer.encode("utf-8", "surrogatepass").hex()

    @property
    def field_name(self) -> str:
        """Its name in the form."""
        return PREFIX + self.pointer


def fields_of(schema: Mapping[str, Any], shown: Mapping[str, Any]) -> list[Field]:
    """The fields of a schema; `shown` is the schema without its secret parts."""
    may_lead = has_secret(schema)

    def is_secret(part: Any) -> bool:
        """Whether a subschema is secret, or may lead to a secret one."""
        return has_secret(part) or (may_lead and has_reference(part))

    return list(_fields(dict(schema), dict(shown), dict(shown), "", "", _DEPTH, is_secret))[:_MOST_FIELDS]


def _fields(
    schema: Any,
    shown: Any,
    root: dict[str, Any],
    pointer: str,
    group: str,
    depth: int,
    is_secret: Callable[[Any], bool],
) -> Iterator[Field]:
    properties = shown.get("properties")
    real = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not isinstance(real, dict):
        return
    required = shown.get("required") or ()
    for name, inner in properties.items():
        place = f"{pointer}/{escaped(name)}"
        holds = real.get(name, {})
        if depth > 1 and _is_plain_object(inner) and not is_secret(holds):
            yield from _fields(holds, inner, root, place, f"{group}{name}.", depth - 1, is_secret)
        else:
            traits = {"is_required": name in required, "is_secret": is_secret(holds)}
            yield _field(name, inner, root, place, group, **traits)


def _field(
    name: str,
    shown: Any,
    root: dict[str, Any],
    pointer: str,
    group: str,
    *,
    is_required: bool,
    is_secret: bool,
) -> Field:
    known = shown if isinstance(shown, dict) else {}
    description = known.get("description")
    return Field(
        pointer=pointer,
        name=name,
        kind=_kind(name, known, is_secret=is_secret),
        type=describe(shown, root),
        description=description if isinstance(description, str) else "",
        is_required=is_required,
        choices=tuple(known["enum"]) if isinstance(known.get("enum"), list) else (),
        default=known.get("default", msgspec.UNSET),
        group=group,
        is_secret=is_secret,
    )


def _kind(name: str, shown: dict[str, Any], *, is_secret: bool) -> Kind:
    if is_secret:
        return "secret" if shown.get("type") == "string" else "json"
    if isinstance(shown.get("enum"), list):
        return "choice"
    match shown.get("type"):
        case "boolean":
            return "flag"
        case "integer" | "number":
            return "number"
        case "string":
            is_long = name in _LONG or shown.get("maxLength", 0) > 500
            return "long" if is_long and "format" not in shown else "text"
    return "json"


def _is_plain_object(schema: Any) -> bool:
    return (
        isinstance(schema, dict)
        and schema.get("type") == "object"
        and isinstance(schema.get("properties"), dict)
        and not schema.keys() & {"$ref", "anyOf", "oneOf", "allOf", "enum", "const"}
    )


# --- values --------------------------------------------------------------------------------------


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed form."""

    arguments: dict[str, Any]
    errors: dict[str, str]
    """By pointer: what could not even be read."""
    values: dict[str, str]
    """By pointer: what was typed; nothing that is secret."""


def collect(fields: list[Field], form: Form) -> Collected:
    """Build arguments from the form; empty fields are left out."""
    arguments: dict[str, Any] = {}
    errors: dict[str, str] = {}
    values: dict[str, str] = {}
    for field in fields:
        typed = form.get(field.field_name)
        if not field.is_secret:
            values[field.pointer] = typed
        if not typed:
            continue
        try:
            _put(arguments, field.pointer, _value(field, typed))
        except ValueError:
            errors[field.pointer] = "This is not JSON"
    return Collected(arguments=arguments, errors=errors, values=values)


def _value(field: Field, typed: str) -> Any:
    if field.kind in ("choice", "flag", "json"):
        return jiter.from_json(typed.encode(), allow_inf_nan=False, catch_duplicate_keys=True)
    if field.kind == "number" and _NUMBER.fullmatch(typed.strip()):
        return json.loads(typed)
    return typed


def _put(arguments: dict[str, Any], pointer: str, value: Any) -> None:
    *above, last = steps_of(pointer)
    here = arguments
    for step in above:
        here = here.setdefault(step, {})
    here[last] = value


def typed_values(fields: list[Field], arguments: Any) -> dict[str, str]:
    """Arguments as a person would type them, without secrets."""
    found: dict[str, str] = {}
    for field in fields:
        if field.is_secret:
            continue
        here: Any = arguments
        for step in steps_of(field.pointer):
            here = here.get(step, msgspec.UNSET) if isinstance(here, dict) else msgspec.UNSET
        if here is not msgspec.UNSET:
            is_text = field.kind in ("text", "long", "number") and isinstance(here, str)
            found[field.pointer] = here if is_text else json.dumps(here, ensure_ascii=False)
    return found


def fits(fields: list[Field], arguments: Any) -> bool:
    """Whether the fields can show all of the arguments."""
    if not isinstance(arguments, dict):
        return False
    rebuilt: dict[str, Any] = {}
    for field in fields:
        here: Any = arguments
        for step in steps_of(field.pointer):
            here = here.get(step, msgspec.UNSET) if isinstance(here, dict) else msgspec.UNSET
        if here is not msgspec.UNSET:
            _put(rebuilt, field.pointer, here)
    return rebuilt == arguments


def nearest(fields: list[Field], pointer: str) -> Field | None:
    """The field at or around a place in the arguments."""
    around = [one for one in fields if pointer == one.pointer or pointer.startswith(f"{one.pointer}/")]
    return max(around, key=lambda one: len(one.pointer), default=None)
