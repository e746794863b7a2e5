"""A form from a JSON Schema, and arguments from a form.

The schema comes with its secret parts removed. References are followed; an object becomes a group of fields,
an array rows that can be added, an object without properties pairs of name and value. What a field cannot
express becomes a JSON field. Nothing is coerced: invalid numbers are sent as typed, and validation says what
is wrong.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, Literal

import jiter
import msgspec
from msgspec.structs import replace

from toolkeep.definitions.secret_subschemas import has_reference, has_secret
from toolkeep.json_values.pointers import escaped, look_up, steps_of
from toolkeep.server.web.web_request import Form
from toolkeep.validation.signature_hint import describe

Kind = Literal[
    "text", "long", "number", "choice", "flag", "date", "moment", "many", "group", "rows", "pairs", "any",
    "json", "secret",
]  # fmt: skip
"""`any` takes JSON or plain text; `many` is an array of choices; `moment` a time with its offset."""

PREFIX: Final = "at:"
"""What the name of a field begins with; the JSON Pointer of its place follows. In the template of a row the
index is `-`, which is the index of no item."""
KEY: Final = "key:"
"""The same, of the name in a pair."""
_DEPTH: Final = 6
"""Nesting up to which groups and rows have fields; what is deeper is one field of JSON."""
_LONG: Final = frozenset(
    ("content", "contents", "text", "body", "message", "new_content", "old_content", "query")
)
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
_MOMENT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
)
"""RFC 3339, as the page sends what is typed into `datetime-local`."""
_MOST_FIELDS: Final = 100
"""Fields of a form, so that a generated schema cannot make a page of thousands; arguments beyond them can be
given as JSON."""
_MOST_ROWS: Final = 100
"""Rows of one array, for the same reason."""
_MOST_TICKS: Final = 12
"""Choices of an array up to which each has a box to tick; more of them are chosen in rows."""
_SCALARS: Final = frozenset(("string", "integer", "number", "boolean"))


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One place in the arguments."""

    pointer: str
    name: str
    kind: Kind
    type: str
    """In words: `integer ≥ 1`."""
    description: str = ""
    is_required: bool = False
    is_nullable: bool = False
    format: str = ""
    choices: tuple[Any, ...] = ()
    default: Any = msgspec.UNSET
    group: str = ""
    """The object that it belongs to."""
    is_secret: bool = False
    """Whether something in it is: then what was typed is sent once, and never comes back."""
    fields: "tuple[Field, ...]" = ()
    """Of a group."""
    item: "Field | None" = None
    """Of rows and pairs: the field of each, at the index `-`."""

    @property
    def id(self) -> str:
        """An HTML id."""
        return field_id(self.pointer)

    @property
    def field_name(self) -> str:
        """Its name in the form."""
        return PREFIX + self.pointer

    @property
    def placeholder(self) -> str:
        """How to write what its type alone does not tell."""
        return {"json": "JSON", "any": "text, or JSON", "moment": "2026-01-31T12:00:00Z"}.get(self.kind, "")

    def row(self, index: int) -> "Field":
        """The field of one row."""
        if self.item is None:
            raise TypeError("it has no rows")
        return _moved(self.item, f"{self.pointer}/-", f"{self.pointer}/{index}")


def field_id(pointer: str) -> str:
    """An HTML id for a place; pointers may contain any character."""
    return "field-" + pointer.encode("utf-8", "surrogatepass").hex()


def _moved(field: Field, old: str, new: str) -> Field:
    return replace(
        field,
        pointer=new + field.pointer[len(old) :],
        fields=tuple(_moved(one, old, new) for one in field.fields),
        item=None if field.item is None else _moved(field.item, old, new),
    )


def fields_of(schema: Mapping[str, Any], shown: Mapping[str, Any]) -> list[Field]:
    """The fields of a schema; `shown` is the schema without its secret parts."""
    may_lead = has_secret(schema)
    builder = _Builder(dict(shown))
    found = []
    real = schema.get("properties")
    for name, inner, is_required in _properties(builder.resolved(shown)):
        holds = real.get(name, {}) if isinstance(real, dict) else {}
        # A reference may lead to something secret: it is not followed then.
        is_secret = has_secret(holds) or (may_lead and has_reference(holds))
        field = builder.field(
            name, inner, f"/{escaped(name)}", "", _DEPTH, is_required=is_required, is_secret=is_secret
        )
        if builder.left > 0:
            found.append(field)
    return found


def every_field(fields: Sequence[Field]) -> Iterator[Field]:
    """The places of the arguments, without the groups around them."""
    for field in fields:
        if field.kind == "group":
            yield from every_field(field.fields)
        else:
            yield field


class _Builder:
    """Makes the fields of one schema."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self.left = _MOST_FIELDS

    def resolved(self, schema: Any) -> dict[str, Any]:
        """A schema without references, nullability and compositions of one object."""
        known: dict[str, Any] = dict(schema) if isinstance(schema, dict) else {}
        for _ in range(8):  # a reference to itself leads nowhere
            reference = known.get("$ref")
            if isinstance(reference, str) and reference.startswith("#"):
                target = self._target(reference)
                rest = {key: value for key, value in known.items() if key != "$ref"}
                known = {**(target if isinstance(target, dict) else {}), **rest}
                continue
            parts = [part for part in known.get("allOf") or () if isinstance(part, dict)]
            if parts:
                known = self._merged({key: value for key, value in known.items() if key != "allOf"}, parts)
                continue
            one = _only_branch(known)
            if one is None:
                return known
            known = one
        return known

    def _described(self, schema: Any) -> str:
        try:
            return describe(schema, self._root)
        except (LookupError, ValueError):
            return "any JSON"

    def _target(self, reference: str) -> Any:
        try:
            return look_up(self._root, reference[1:])
        except (LookupError, ValueError):  # such a schema is refused when it is registered
            return {}

    def _merged(self, known: dict[str, Any], parts: list[dict[str, Any]]) -> dict[str, Any]:
        for part in map(self.resolved, parts):
            properties = {**part.get("properties", {}), **known.get("properties", {})}
            required = [*(part.get("required") or ()), *(known.get("required") or ())]
            known = {**part, **known}
            if properties:
                known |= {"properties": properties, "required": required}
        return known

    def field(
        self,
        name: str,
        schema: Any,
        pointer: str,
        group: str,
        depth: int,
        *,
        is_required: bool = False,
        is_secret: bool = False,
    ) -> Field:
        """The field of one place, with those inside it."""
        self.left -= 1
        plain = schema if isinstance(schema, dict) else {}
        known = plain if is_secret else self.resolved(schema)
        description = plain.get("description", known.get("description"))
        made = Field(
            pointer=pointer,
            name=name,
            kind="json",
            type=self._described(schema),
            description=description if isinstance(description, str) else "",
            is_required=is_required,
            is_nullable=not is_secret and _is_nullable(plain, known),
            format=str(known.get("format", "")),
            choices=_choices(known),
            default=plain.get("default", known.get("default", msgspec.UNSET)),
            group=group,
            is_secret=is_secret,
        )
        if is_secret:
            return replace(made, kind="secret" if known.get("type") == "string" else "json")
        return self._shaped(made, known, depth)

    def _shaped(self, made: Field, known: dict[str, Any], depth: int) -> Field:
        """The field with its kind, and the fields inside it."""
        kind = _kind(made.name, known)
        if kind == "json" and not _says_something(known):
            return replace(made, kind="any")
        if kind not in ("group", "rows", "pairs"):
            return replace(made, kind=kind)
        if depth <= 1 or self.left <= 0:
            return made
        if kind == "group":
            inside = f"{made.group}{made.name}."
            fields = tuple(
                self.field(
                    name, inner, f"{made.pointer}/{escaped(name)}", inside, depth - 1, is_required=is_required
                )
                for name, inner, is_required in _properties(known)
            )
            return replace(made, kind="group", fields=fields)
        inner = known.get("items" if kind == "rows" else "additionalProperties", {})
        # One more for each array, not for each of its rows.
        item = self.field("", inner, f"{made.pointer}/-", "", depth - 1)
        if kind == "rows" and item.choices and item.kind == "choice" and len(item.choices) <= _MOST_TICKS:
            return replace(made, kind="many", choices=item.choices)
        return replace(made, kind=kind, item=item)


def _properties(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    properties, required = schema.get("properties"), schema.get("required") or ()
    for name, inner in (properties if isinstance(properties, dict) else {}).items():
        yield name, inner, name in required


def _only_branch(known: dict[str, Any]) -> dict[str, Any] | None:
    """The schema with the one branch that is not null merged into it; None if there is no such branch."""
    for keyword in ("anyOf", "oneOf"):
        branches = known.get(keyword)
        if not isinstance(branches, list):
            continue
        left = [one for one in branches if not _is_null(one)]
        if len(left) == 1 and isinstance(left[0], dict):
            return {**left[0], **{key: value for key, value in known.items() if key != keyword}}
    return None


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and (
        schema.get("type") == "null" or schema.get("enum") == [None] or schema.get("const", 0) is None
    )


def _is_nullable(plain: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    types = known.get("type")
    if isinstance(types, list) and "null" in types:
        return True
    branches = [one for key in ("anyOf", "oneOf") for one in plain.get(key) or ()]
    return any(map(_is_null, branches))


def _choices(known: Mapping[str, Any]) -> tuple[Any, ...]:
    if "const" in known:
        return (known["const"],)
    return tuple(known["enum"]) if isinstance(known.get("enum"), list) else ()


def _type_of(known: Mapping[str, Any]) -> str:
    """The one type besides null; empty if there are several or none is said."""
    types = known.get("type")
    if isinstance(types, list):
        left = [one for one in types if one != "null"]
        return str(left[0]) if len(left) == 1 else ""
    if types is None and isinstance(known.get("properties"), dict):
        return "object"
    return str(types or "")


def _kind(name: str, known: Mapping[str, Any]) -> Kind:
    if _choices(known):
        return "choice"
    if _is_scalar_union(known):
        return "any"
    if known.keys() & {"anyOf", "oneOf", "not", "if"} and "properties" not in known:
        return "json"
    match _type_of(known):
        case "boolean":
            return "flag"
        case "integer" | "number":
            return "number"
        case "string":
            return _text_kind(name, known)
        case "object":
            return "group" if known.get("properties") else "pairs"
        case "array" if isinstance(known.get("items"), dict | bool | None) and "prefixItems" not in known:
            return "rows"
    return "json"


def _text_kind(name: str, known: Mapping[str, Any]) -> Kind:
    if known.get("format") == "date":
        return "date"
    if known.get("format") == "date-time":
        return "moment"
    is_long = name in _LONG or known.get("maxLength", 0) > 500
    return "long" if is_long and "format" not in known else "text"


def _is_scalar_union(known: Mapping[str, Any]) -> bool:
    """Whether it is one of several scalars, such as a number or a text."""
    branches = known.get("anyOf") or known.get("oneOf")
    if isinstance(branches, list):
        return all(isinstance(one, dict) and one.get("type") in (*_SCALARS, "null") for one in branches)
    types = known.get("type")
    if not isinstance(types, list):
        return False
    left = [one for one in types if one != "null"]
    return len(left) > 1 and all(one in _SCALARS for one in left)


def _says_something(schema: Any) -> bool:
    return isinstance(schema, dict) and bool(schema.keys() - {"title", "description", "default", "examples"})


# --- values --------------------------------------------------------------------------------------


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed form."""

    arguments: dict[str, Any]
    errors: dict[str, str]
    """By pointer: what could not even be read."""
    values: dict[str, str]
    """By pointer: what was typed; nothing that is secret. Rows have the index that they have in the
    arguments."""


def collect(fields: Sequence[Field], form: Form) -> Collected:
    """Build arguments from the form; empty fields are left out."""
    reader = _Reader(form)
    arguments = reader.members(fields, fields)
    return Collected(arguments=arguments, errors=reader.errors, values=reader.values)


class _Reader:
    """Reads one form. `place` is a field as it is in the form, `at` the same in the arguments: rows that are
    empty or were removed are left out, so their indices differ."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._names = [name for name, _ in form.pairs]
        self.errors: dict[str, str] = {}
        self.values: dict[str, str] = {}

    def members(self, places: Sequence[Field], ats: Sequence[Field]) -> dict[str, Any]:
        found = {}
        for place, at in zip(places, ats, strict=True):
            value = self._value(place, at)
            if value is not msgspec.UNSET:
                found[place.name] = value
        return found

    def _value(self, place: Field, at: Field) -> Any:
        if place.kind == "group":
            return self.members(place.fields, at.fields) or msgspec.UNSET
        if place.kind == "rows":
            rows = self._rows(place, at)
            return rows if rows or place.is_required else msgspec.UNSET
        if place.kind == "pairs":
            return self._pairs(place, at) or ({} if place.is_required else msgspec.UNSET)
        if place.kind == "many":
            return self._ticked(place, at)
        return self._scalar(place, at)

    def _rows(self, place: Field, at: Field) -> list[Any]:
        found: list[Any] = []
        for index in self._indices(place):
            value = self._value(place.row(index), at.row(len(found)))
            if value is not msgspec.UNSET:
                found.append(value)
        return found

    def _pairs(self, place: Field, at: Field) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for index in self._indices(place):
            row, kept = place.row(index), at.row(len(found))
            name = self._form.get(KEY + row.pointer)
            value = self._value(row, kept)
            if value is not msgspec.UNSET:
                self.values[KEY + kept.pointer] = name
                if name in found:
                    self.errors[kept.pointer] = f"There are two of the name {name!r}"
                found[name] = value
        return found

    def _indices(self, place: Field) -> list[int]:
        where = rf"(?:{PREFIX}|{KEY}){re.escape(place.pointer)}/([0-9]{{1,6}})(?:/.*)?"
        pattern = re.compile(where, re.DOTALL)
        met = (pattern.fullmatch(name) for name in self._names)
        found = dict.fromkeys(int(one[1]) for one in met if one is not None)
        return list(islice(found, _MOST_ROWS))

    def _ticked(self, place: Field, at: Field) -> Any:
        typed = [one for one in self._form.all(place.field_name) if one]
        self.values[at.pointer] = "\n".join(typed)
        try:
            found = [jiter.from_json(one.encode()) for one in typed]
        except ValueError:
            self.errors[at.pointer] = "This is not JSON"
            return msgspec.UNSET
        return found if found or place.is_required else msgspec.UNSET

    def _scalar(self, place: Field, at: Field) -> Any:
        typed = self._form.get(place.field_name)
        if not typed:
            is_null = place.is_required and place.is_nullable and place.field_name in self._form
            return None if is_null else msgspec.UNSET
        if not place.is_secret:
            self.values[at.pointer] = typed
        try:
            return _parsed(place, typed)
        except ValueError:
            self.errors[at.pointer] = "This is not JSON"
            return msgspec.UNSET


def _parsed(field: Field, typed: str) -> Any:
    if field.kind in ("choice", "flag", "json"):
        return jiter.from_json(typed.encode(), allow_inf_nan=False, catch_duplicate_keys=True)
    if field.kind == "any":
        return _json_or_text(typed)
    if field.kind == "number" and _NUMBER.fullmatch(typed.strip()):
        return json.loads(typed)
    return typed


def _json_or_text(typed: str) -> Any:
    try:
        return jiter.from_json(typed.encode(), allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        return typed


def typed_values(fields: Sequence[Field], arguments: Any) -> dict[str, str]:
    """Arguments as a person would type them, without secrets."""
    return {name.removeprefix(PREFIX): text for name, text in _typed(fields, arguments, secrets=False)}


def _typed(fields: Sequence[Field], arguments: Any, *, secrets: bool) -> Iterator[tuple[str, str]]:
    if not isinstance(arguments, dict):
        return
    for field in fields:
        if field.name in arguments and (secrets or not field.is_secret):
            yield from _typed_field(field, arguments[field.name], secrets=secrets)


def _typed_field(field: Field, value: Any, *, secrets: bool) -> Iterator[tuple[str, str]]:
    if field.kind == "group":
        yield from _typed(field.fields, value, secrets=secrets)
    elif field.kind == "rows" and isinstance(value, list):
        for index, one in enumerate(value[:_MOST_ROWS]):
            yield from _typed_field(field.row(index), one, secrets=secrets)
    elif field.kind == "pairs" and isinstance(value, dict):
        for index, (name, one) in enumerate(islice(value.items(), _MOST_ROWS)):
            row = field.row(index)
            yield KEY + row.pointer, name
            yield from _typed_field(row, one, secrets=secrets)
    elif field.kind == "many" and isinstance(value, list):
        yield field.field_name, "\n".join(json.dumps(one, ensure_ascii=False) for one in value)
    elif field.kind not in ("rows", "pairs", "many"):
        yield field.field_name, _text_of(field, value)


def _text_of(field: Field, value: Any) -> str:
    is_plain = field.kind in ("text", "long", "number", "date", "moment", "secret") and isinstance(value, str)
    is_plain = is_plain or (field.kind == "any" and isinstance(value, str) and _json_or_text(value) == value)
    return str(value) if is_plain else json.dumps(value, ensure_ascii=False)


def is_moment(text: str) -> bool:
    """Whether a text is a time with its offset, which the page shows in the viewer's zone."""
    if not _MOMENT.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:  # there is no such day, or no such hour
        return False
    return True


def fits(fields: Sequence[Field], arguments: Any) -> bool:
    """Whether the fields can show all of the arguments."""
    pairs = list(_typed(fields, arguments, secrets=True))
    many = {field.field_name for field in every_field(fields) if field.kind == "many"}
    split = [(name, one) for name, text in pairs for one in (text.split("\n") if name in many else [text])]
    collected = collect(fields, Form(split))
    return bool(isinstance(arguments, dict) and collected.arguments == arguments and not collected.errors)


def rows_of(field: Field, values: Mapping[str, str]) -> list[Field]:
    """The rows of an array or of pairs that have something in them."""
    pattern = re.compile(rf"(?:{KEY})?{re.escape(field.pointer)}/([0-9]+)(?:/.*)?", re.DOTALL)
    found = sorted({int(met[1]) for name in values if (met := pattern.fullmatch(name))})
    return [field.row(index) for index in found]


def nearest(fields: Sequence[Field], pointer: str) -> Field | None:
    """The field at or around a place in the arguments."""
    found, names = None, steps_of(pointer) if pointer.startswith("/") else []
    for step in names:
        field = next((one for one in fields if one.name == step), None) if fields else None
        if found is not None and found.kind == "rows" and step.isdigit() and len(step) < 7:
            field = found.row(int(step))
        if field is None:
            break
        found, fields = field, field.fields
    return found


# --- an example ----------------------------------------------------------------------------------

_WORDS: Final = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "email": "ada@example.org",
    "uri": "https://example.org/",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def example_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments to begin with: what is required, and what has an example or a default."""
    return _Example(_Builder(dict(schema))).object(schema, _DEPTH)


class _Example:
    def __init__(self, builder: _Builder) -> None:
        self._builder = builder

    def object(self, schema: Any, depth: int) -> dict[str, Any]:
        known = self._builder.resolved(schema)
        return {
            name: self._value(inner, name, depth - 1)
            for name, inner, is_required in _properties(known)
            if is_required or _given(self._builder.resolved(inner)) is not msgspec.UNSET
        }

    def _value(self, schema: Any, name: str, depth: int) -> Any:
        known = self._builder.resolved(schema)
        given = _given(known)
        if given is not msgspec.UNSET:
            return given
        if choices := _choices(known):
            return choices[0]
        if depth <= 0:
            return None
        for branch in known.get("anyOf") or known.get("oneOf") or ():
            return self._value(branch, name, depth - 1)
        match _type_of(known):
            case "object":
                return self.object(known, depth)
            case "array":
                return [self._value(known.get("items", {}), name, depth - 1)]
            case "boolean":
                return True
            case "integer" | "number":
                return _number(known)
            case "null":
                return None
        return _word(known, name)


def _given(known: Mapping[str, Any]) -> Any:
    examples = known.get("examples")
    if isinstance(examples, list) and examples:
        return examples[0]
    for keyword in ("example", "default", "const"):
        if known.get(keyword) is not None:
            return known[keyword]
    return msgspec.UNSET


def _number(known: Mapping[str, Any]) -> Any:
    low = known.get("minimum", known.get("exclusiveMinimum", 0) + ("exclusiveMinimum" in known))
    high = known.get("maximum", known.get("exclusiveMaximum", 1) - ("exclusiveMaximum" in known))
    return low if "minimum" in known or "exclusiveMinimum" in known else min(1, high)


def _word(known: Mapping[str, Any], name: str) -> str:
    word = _WORDS.get(str(known.get("format", "")), name.replace("_", " ") or "text")
    longest = known.get("maxLength")
    word = word[:longest] if isinstance(longest, int) else word
    return word.ljust(known.get("minLength", 0), "x") if isinstance(known.get("minLength", 0), int) else word
