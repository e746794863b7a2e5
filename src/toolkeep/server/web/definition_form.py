"""A definition as form fields, both ways.

A form becomes the data that `/v1` takes, plus the fields that could not be read. Parts of a parameter without
a field of their own (limits, items, nested properties) are JSON, so that editing loses nothing.
"""

from collections.abc import Mapping
from typing import Any, Final

import jiter
import msgspec

from toolkeep.definitions.vocabulary import Category, Danger, Isolation, ParameterType, SideEffect
from toolkeep.server.web.templates_env import pretty
from toolkeep.server.web.web_request import Form

TYPES: Final = tuple(one.value for one in ParameterType if one is not ParameterType.ONE_OF)
CATEGORIES: Final = tuple((one.value, one.risk) for one in Category)
DANGERS: Final = tuple(one.value for one in Danger)
ISOLATIONS: Final = tuple(one.value for one in Isolation if one is not Isolation.NONE)
EFFECTS: Final = tuple(one.value for one in SideEffect)
_KILO: Final = 1024
_PLAIN_ROOT: Final = frozenset(("type", "properties", "required", "additionalProperties"))
_SHOWN: Final = frozenset(
    (
        "name", "description", "version", "category", "parameters", "output_schema", "constraints",
        "requires_confirmation", "danger", "side_effects", "capabilities", "client_executed",
    )
)  # fmt: skip
"""What the form has fields for; the rest of a definition is JSON."""


class ParameterDraft(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter in the form."""

    mark: str
    name: str = ""
    type: str = "string"
    description: str = ""
    required: bool = False
    default: str = ""
    enum: str = ""
    more: str = ""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A definition in the form."""

    name: str = ""
    description: str = ""
    version: str = "1.0.0"
    category: str = "custom"
    danger: str = ""
    parameters: tuple[ParameterDraft, ...] = ()
    parameters_json: str = ""
    """Where the schema is more than a list of properties."""
    is_closed: bool = False
    """Whether the schema says in words that it takes nothing else."""
    output_schema: str = ""
    timeout_s: str = ""
    output_kb: str = ""
    isolation: str = ""
    requires_confirmation: bool = False
    client_executed: bool = False
    side_effects: tuple[str, ...] = ()
    capabilities: str = ""
    more: str = ""


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed form."""

    draft: Draft
    data: dict[str, Any]
    errors: dict[str, list[str]]
    """By slot of the form: what could not be read, or is missing."""


class _Reader:
    """Reads fields and collects errors."""

    def __init__(self) -> None:
        self.errors: dict[str, list[str]] = {}

    def note(self, slot: str, message: str) -> None:
        self.errors.setdefault(slot, []).append(message)

    def json(self, slot: str, text: str) -> Any:
        if not text.strip():
            return None
        try:
            return jiter.from_json(text.encode(), allow_inf_nan=False, catch_duplicate_keys=True)
        except ValueError as error:
            self.note(slot, f"is not JSON: {error}"[:200])
            return None

    def object(self, slot: str, text: str) -> dict[str, Any]:
        found = self.json(slot, text)
        if found is not None and not isinstance(found, dict):
            self.note(slot, "must be a JSON object")
        return found if isinstance(found, dict) else {}

    def number(self, slot: str, text: str) -> float | None:
        if not text.strip():
            return None
        try:
            found = float(text)
        except ValueError:
            self.note(slot, "is not a number")
            return None
        return int(found) if found == int(found) else found


def read_draft(form: Form) -> Read:
    """Parse the form into a definition."""
    reader = _Reader()
    draft = _draft(form)
    data: dict[str, Any] = {
        **reader.object("more", draft.more),
        "name": draft.name,
        "description": draft.description,
        "version": draft.version,
        "category": draft.category,
        "parameters": _parameters(reader, draft),
    }
    optional = {
        "danger": draft.danger or None,
        "output_schema": reader.json("output_schema", draft.output_schema),
        "constraints": _constraints(reader, draft) or None,
        "requires_confirmation": draft.requires_confirmation or None,
        "client_executed": draft.client_executed or None,
        "side_effects": list(draft.side_effects) or None,
        "capabilities": draft.capabilities.split() or None,
    }
    data |= {key: value for key, value in optional.items() if value is not None}
    return Read(draft=draft, data=data, errors=reader.errors)


def _draft(form: Form) -> Draft:
    marks = [name[2:-5] for name, _ in form.pairs if name.startswith("p.") and name.endswith(".name")]
    return Draft(
        **{key: form.get(key) for key in ("name", "description", "version", "category", "danger")},
        parameters=tuple(_parameter(form, mark) for mark in marks if mark.isalnum()),
        parameters_json=form.get("parameters_json"),
        is_closed="is_closed" in form,
        output_schema=form.get("output_schema"),
        timeout_s=form.get("timeout_s"),
        output_kb=form.get("output_kb"),
        isolation=form.get("isolation"),
        requires_confirmation="requires_confirmation" in form,
        client_executed="client_executed" in form,
        side_effects=tuple(form.all("side_effects")),
        capabilities=form.get("capabilities"),
        more=form.get("more"),
    )


def _parameter(form: Form, mark: str) -> ParameterDraft:
    texts = {
        key: form.get(f"p.{mark}.{key}") for key in ("name", "type", "description", "default", "enum", "more")
    }
    return ParameterDraft(mark=mark, required=f"p.{mark}.required" in form, **texts)


def _parameters(reader: _Reader, draft: Draft) -> Any:
    if draft.parameters_json.strip():
        return reader.json("parameters", draft.parameters_json)
    listed = [_parameter_data(reader, one) for one in draft.parameters]
    return _closed(reader, listed) if draft.is_closed else listed


def _closed(reader: _Reader, listed: list[dict[str, Any]]) -> dict[str, Any]:
    """The parameters with an explicit `additionalProperties: false`."""
    properties: dict[str, Any] = {}
    required = []
    for one in listed:
        name, is_required, more = one.pop("name"), one.pop("required"), one.pop("schema", {})
        if name in properties:
            reader.note("parameters", f"parameter {name!r} is defined twice: give each its own name")
        properties[name] = {**one, **more}
        required += [name] if is_required else []
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, **({"required": required} if required else {}), "additionalProperties": False}


def _parameter_data(reader: _Reader, one: ParameterDraft) -> dict[str, Any]:
    slot = f"p-{one.mark}"
    if not one.name:
        reader.note(slot, "needs a name")
    if not one.description.strip():
        reader.note(slot, "needs a description: it is what the model reads")
    data: dict[str, Any] = {
        "name": one.name,
        "type": one.type,
        "description": one.description,
        "required": one.required,
    }
    if one.enum.strip():
        data["enum"] = [_typed(one.type, word.strip()) for word in one.enum.split(",")]
    if one.default:
        data["default"] = _typed(one.type, one.default)
    more = reader.object(slot, one.more)
    return data | ({"schema": more} if more else {})


def _typed(kind: str, text: str) -> Any:
    """Convert a typed value; text that does not convert stays text, and validation reports it."""
    if kind == "string":
        return text
    try:
        return jiter.from_json(text.encode(), allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        return text


def _constraints(reader: _Reader, draft: Draft) -> dict[str, Any]:
    kilobytes = reader.number("output_kb", draft.output_kb)
    found = {
        "max_execution_time": reader.number("timeout_s", draft.timeout_s),
        "max_output_size": None if kilobytes is None else int(kilobytes * _KILO),
        "required_isolation": draft.isolation or None,
    }
    return {key: value for key, value in found.items() if value is not None}


def slot_of(field: str, draft: Draft) -> str:
    """The form slot at which a problem is shown."""
    first, _, rest = field.partition("/")
    if first == "parameters":
        return _parameter_slot(rest, draft)
    if first == "constraints":
        known = {
            "max_execution_time": "timeout_s",
            "max_output_size": "output_kb",
            "required_isolation": "isolation",
        }
        return known.get(rest.partition("/")[0], "more")
    known_fields = (
        "name",
        "description",
        "version",
        "category",
        "danger",
        "output_schema",
        "side_effects",
        "capabilities",
    )
    return first if first in known_fields else "more"


def _parameter_slot(rest: str, draft: Draft) -> str:
    parts = rest.split("/")
    if parts[0].isdigit() and int(parts[0]) < len(draft.parameters):
        return f"p-{draft.parameters[int(parts[0])].mark}"
    if parts[0] == "properties" and len(parts) > 1:
        found = next((one for one in draft.parameters if one.name == parts[1]), None)
        if found is not None:
            return f"p-{found.mark}"
    return "parameters"


# --- from a definition ---------------------------------------------------------------------------


def draft_of(definition: Mapping[str, Any]) -> Draft:
    """A stored definition as a form."""
    constraints = definition.get("constraints") or {}
    size = constraints.get("max_output_size")
    rest = {key: value for key, value in definition.items() if key not in _SHOWN}
    others = {key: constraints[key] for key in constraints if key in ("allow_side_effects", "runs_on")}
    if others:
        rest["constraints"] = others
    schema = definition.get("parameters") or {}
    is_plain = schema.keys() <= _PLAIN_ROOT and schema.get("additionalProperties", False) is False
    output = definition.get("output_schema")
    return Draft(
        name=definition["name"],
        description=definition["description"],
        version=definition["version"],
        category=definition["category"],
        danger=definition.get("danger") or "",
        parameters=tuple(_parameter_drafts(schema)) if is_plain else (),
        parameters_json="" if is_plain else pretty(schema),
        is_closed=is_plain and "additionalProperties" in schema,
        output_schema="" if output is None else pretty(output),
        timeout_s=_shown_number(constraints.get("max_execution_time")),
        output_kb=_shown_number(None if size is None else size / _KILO),
        isolation=constraints.get("required_isolation") or "",
        requires_confirmation=bool(definition.get("requires_confirmation")),
        client_executed=bool(definition.get("client_executed")),
        side_effects=tuple(definition.get("side_effects") or ()),
        capabilities="\n".join(definition.get("capabilities") or ()),
        more=pretty(rest) if rest else "",
    )


def _shown_number(number: float | None) -> str:
    return "" if number is None else f"{number:g}"


def _parameter_drafts(schema: Mapping[str, Any]) -> list[ParameterDraft]:
    required = schema.get("required") or ()
    properties = schema.get("properties") or {}
    return [
        _parameter_draft(f"k{number}", name, inner, is_required=name in required)
        for number, (name, inner) in enumerate(properties.items())
    ]


def _parameter_draft(mark: str, name: str, inner: Any, *, is_required: bool) -> ParameterDraft:
    known = dict(inner) if isinstance(inner, dict) else {}
    kind, description = known.pop("type", "string"), known.pop("description", "")
    default, enum = known.pop("default", msgspec.UNSET), known.pop("enum", None)
    is_listed = enum is not None and not any("," in str(one) for one in enum)
    if enum is not None and not is_listed:
        known["enum"] = enum
    return ParameterDraft(
        mark=mark,
        name=name,
        type=kind if isinstance(kind, str) else "string",
        description=description,
        required=is_required,
        default="" if default is msgspec.UNSET else _typed_text(default),
        enum=", ".join(map(_typed_text, enum)) if is_listed and enum else "",
        more=pretty(known) if known else "",
    )


def _typed_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
