"""Elicitation forms: the flat JSON Schema subset of MCP (2025-11-25, Elicitation), bounded and sanitized.

In comes a schema of a hostile server; out goes a `Form` rebuilt from known keywords only. An unknown keyword
could not be validated, so the form is refused. Names and values with invisible characters are refused too:
the person would agree to something else than they see.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import jsonschema_rs
import msgspec

from toolkeep.limits import KIB
from toolkeep.text.display import excerpt, visible, visible_lines
from toolkeep.validation.schema_engine import ENGINE_OPTIONS

FIELDS: Final = 50
"""Maximum number of fields of a form."""
CHOICES: Final = 200
FORM_BYTES: Final = 64 * KIB
"""Maximum size of a form as JSON: 50 fields of more than a kilobyte each."""
ANSWER_BYTES: Final = 64 * KIB
"""Maximum size of an answer as JSON: as much as a form, since no field asks for a document."""
_NAME_CHARS: Final = 100
"""Maximum length of a name or choice. It is never truncated, so it must fit one line."""
_TEXT_CHARS: Final = 500
"""Characters of a title or description that are shown: a few lines for each field."""
_LARGEST: Final = 1e15
"""Bound of the numbers in a form: below 2**53, so exact as a double too. Excludes NaN and infinity."""
_FORMATS: Final = ("email", "uri", "date", "date-time")
_AROUND: Final = frozenset(
    ("$schema", "type", "title", "description", "properties", "required", "additionalProperties")
)


class FormRefused(Exception):
    """A refused form or answer; the reason quotes neither."""


class Form:
    """A validated form."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        """The sanitized schema."""
        # An answer with further fields would send what nobody was asked about.
        closed = {**schema, "additionalProperties": False}
        self._validator = jsonschema_rs.Draft202012Validator(closed, **ENGINE_OPTIONS)

    def filled(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Validate an answer, with defaults for missing fields (SEP-1034). Raises `FormRefused`."""
        fields = self.schema["properties"]
        suggested = {name: field["default"] for name, field in fields.items() if "default" in field}
        try:
            raw = msgspec.json.encode({**suggested, **given})
        except Exception:  # noqa: BLE001 -- the host's value may raise anything
            raise FormRefused("the answer is no mapping that JSON can hold") from None
        if len(raw) > ANSWER_BYTES:
            raise FormRefused(f"the answer has more than {ANSWER_BYTES} bytes")
        content: dict[str, Any] = msgspec.json.decode(raw)
        if not self._validator.is_valid(content):
            raise FormRefused("the answer does not fit the form")
        return content


def read_form(said: object) -> Form:
    """Parse a requested form. Raises `FormRefused`."""
    schema = _object(said, _AROUND)
    # The size of the whole, beside the limits of its parts: 50 fields with 200 choices each add up.
    if len(msgspec.json.encode(schema)) > FORM_BYTES:
        raise FormRefused(f"the form has more than {FORM_BYTES} bytes")
    fields, required = schema.get("properties"), schema.get("required", [])
    if schema.get("type") != "object" or schema.get("additionalProperties", False) is not False:
        raise FormRefused("the form is no object with known fields alone")
    if not isinstance(fields, dict) or len(fields) > FIELDS:
        raise FormRefused(f"the form has no fields, or more than {FIELDS}")
    if not isinstance(required, list) or not all(type(name) is str and name in fields for name in required):
        raise FormRefused("the form requires what it does not have")
    shown = {_name(name): _field(field) for name, field in fields.items()}
    needed = list(dict.fromkeys(required))
    try:
        return Form({"type": "object", **_words(schema), "properties": shown, "required": needed})
    except (ValueError, jsonschema_rs.ValidationError):
        raise FormRefused("the form cannot be checked") from None


def _field(said: object) -> dict[str, Any]:
    kind = said.get("type") if isinstance(said, dict) else None
    if type(kind) is not str or kind not in _KEYWORDS:
        raise FormRefused("a field of the form is neither text, a number, yes or no, nor a choice")
    readers = _KEYWORDS[kind]
    field = _object(said, readers.keys() | {"type", "title", "description", "default"})
    checked = {key: read(field[key]) for key, read in readers.items() if key in field}
    if kind == "array" and "items" not in checked:
        raise FormRefused("a list in the form says nothing about its items")
    suggested = {"default": _suggested(field["default"])} if "default" in field else {}
    return {"type": kind, **_words(field), **checked, **suggested}


def _object(said: object, known: "frozenset[str] | set[str]") -> dict[str, Any]:
    if not isinstance(said, dict) or not said.keys() <= known:
        raise FormRefused("the form is nested, or has keywords that forms do not have")
    return said


def _words(said: dict[str, Any]) -> dict[str, str]:
    return {key: _text(said[key]) for key in ("title", "description") if key in said}


def _text(said: object) -> str:
    """Sanitized display text of a field."""
    if type(said) is not str:
        raise FormRefused("words of the form are no text")
    return excerpt(said, _TEXT_CHARS)


def _name(said: object) -> str:
    """A name or choice, which is sent back verbatim, so it must be exactly what is shown."""
    if type(said) is not str or not 0 < len(said) <= _NAME_CHARS or visible(said) != said:
        raise FormRefused("a name or a choice of the form is empty, too long, or hides something")
    return said


def _suggested(said: object) -> Any:
    texts = said if type(said) is list else [said]
    if not all(type(one) in (str, int, float, bool) for one in texts):
        raise FormRefused("a value that the form suggests is nested")
    if any(type(one) is str and visible_lines(one) != one for one in texts):
        raise FormRefused("a value that the form suggests hides something")
    return said


def _count(said: object) -> int:
    if type(said) is not int or not 0 <= said < _LARGEST:
        raise FormRefused("a bound of the form is no count")
    return said


def _number(said: object) -> int | float:
    if not isinstance(said, int | float) or isinstance(said, bool) or not abs(said) < _LARGEST:
        raise FormRefused("a bound of the form is no number")
    return said


def _format(said: object) -> str:
    if type(said) is not str or said not in _FORMATS:
        raise FormRefused("the form wants a format that forms do not have")
    return said


def _list(said: object, read: Callable[[object], Any]) -> list[Any]:
    if type(said) is not list or not 0 < len(said) <= CHOICES:
        raise FormRefused(f"a choice of the form is empty, or has more than {CHOICES} values")
    return [read(one) for one in said]


def _choices(said: object) -> list[str]:
    return _list(said, _name)


def _labels(said: object) -> list[str]:
    return _list(said, _text)


def _titled(said: object) -> list[dict[str, str]]:
    return _list(said, _titled_choice)


def _titled_choice(said: object) -> dict[str, str]:
    choice = _object(said, {"const", "title"})
    return {"const": _name(choice.get("const")), "title": _text(choice.get("title"))}


def _items(said: object) -> dict[str, Any]:
    items = _object(said, {"type", "enum", "anyOf"})
    if items.get("type", "string") != "string" or ("enum" in items) is ("anyOf" in items):
        raise FormRefused("a list in the form is no choice of texts")
    chosen = {"enum": _choices(items["enum"])} if "enum" in items else {"anyOf": _titled(items["anyOf"])}
    return {"type": "string", **chosen}


_Reader = Callable[[object], Any]
_BOUNDS: Final[dict[str, _Reader]] = {"minimum": _number, "maximum": _number}
_KEYWORDS: Final[dict[str, dict[str, _Reader]]] = {
    "string": {
        "minLength": _count, "maxLength": _count, "format": _format, "enum": _choices, "enumNames": _labels,
        "oneOf": _titled,
    },
    "number": _BOUNDS,
    "integer": _BOUNDS,
    "boolean": {},
    "array": {"minItems": _count, "maxItems": _count, "items": _items},
}  # fmt: skip
