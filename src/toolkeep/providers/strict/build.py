"""Build the strict form of a tool's schema.

Optional becomes nullable and required, open objects become JSON text, maps become pairs. What the strict form
cannot express goes into the description, and the keep still enforces it.
"""

import re
from collections.abc import Callable
from typing import Any, Final

import jsonschema_rs

from toolkeep.json_values.pointers import look_up, pointer, steps_of
from toolkeep.limits import INLINED_SCHEMAS, LONG_ENUM, STRICT_DEPTH
from toolkeep.providers.composition import CannotMerge, merged, plain_root, resolved
from toolkeep.providers.keyword_descriptions import described, said
from toolkeep.providers.schema_losses import Losses, NotExpressible
from toolkeep.providers.strict.nodes import (
    Branch,
    Choice,
    Items,
    JsonText,
    Member,
    Members,
    Named,
    Node,
    Pairs,
    Plain,
    Wrapped,
    json_text,
)
from toolkeep.validation.schema_engine import ENGINE_OPTIONS
from toolkeep.validation.schema_keywords import types_of

ROOT_FORBIDS: Final = ("oneOf", "anyOf", "allOf", "enum", "const", "not")
_FORMATS: Final = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
)
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_TEXTS: Final = ("pattern", "format")
_OTHER_REGEX: Final = re.compile(r"\(\?[=!<]|\\[1-9bBGZAzkpP]")
"""Pattern syntax that strict modes refuse: lookaround, backreferences, word boundaries."""

_WHOLE: Final = "arguments"
_EMPTY: Final[dict[str, Any]] = {}
_UNION: Final = ("anyOf", "oneOf")
_SILENT: Final = frozenset(("description", "$defs", "type"))
_IMPLIED: Final = (
    ("object", ("properties", "additionalProperties", "required", "patternProperties")),
    ("array", ("items", "prefixItems", "minItems", "maxItems")),
    ("string", ("minLength", "maxLength", "pattern", "format")),
    ("number", _NUMBERS),
)

Path = tuple[str, ...]


class Builder:
    """Builds the nodes of one schema, whose references are local pointers."""

    def __init__(self, schema: dict[str, Any], losses: Losses) -> None:
        self._root = schema
        self._losses = losses
        self._named: dict[str, tuple[str, Named]] = {}
        self._count = 0
        self.has_choices = False

    def build(self) -> Node:
        """The root."""
        try:
            schema = plain_root(self._root, ROOT_FORBIDS, self._root, self._losses)
            if self._is_open(schema) and "additionalProperties" in schema:
                self._losses.note("", "additionalProperties", "kept", f"below the parameter {_WHOLE!r}")
                return Wrapped(self._object(schema, (), 1), _WHOLE)
            return self._members(schema, (), 1)
        except (CannotMerge, KeyError, RecursionError) as error:
            raise NotExpressible(f"its schema cannot be taken apart: {error}", "make it simpler") from error

    def definitions(self) -> dict[str, Any]:
        """The definitions that the nodes reference."""
        return {name: node.target.schema for name, node in self._named.values() if node.target is not None}

    def _place(self, schema: Any, path: Path, depth: int) -> Node:
        self._count += 1
        if self._count > INLINED_SCHEMAS:
            raise NotExpressible(f"its schema has more than {INLINED_SCHEMAS} parts", "make it smaller")
        if not isinstance(schema, dict):
            return self._text(_EMPTY, path, "any JSON value")
        if isinstance(schema.get("$ref"), str) and set(schema) <= {"$ref", "$defs"}:
            return self._reference(schema["$ref"], path, depth)
        schema = self._flat(schema, path)
        if "enum" in schema or "const" in schema:
            return self._enum(schema, path)
        types = self._types(schema)
        if types is None:
            return self._union(schema, path, depth)
        if len(types) > 1:
            return self._several(schema, types, path, depth)
        return self._typed(schema, types[0], path, depth)

    def _flat(self, schema: dict[str, Any], path: Path) -> dict[str, Any]:
        """Without a reference and without `allOf` at this place."""
        inner = resolved(schema, self._root)
        if not isinstance(inner, dict):
            return _EMPTY
        if "allOf" not in inner:
            return inner
        try:
            made = merged(inner, self._root)
        except CannotMerge as error:
            self._losses.note(pointer(path), "allOf", "weakened", str(error))
            kept = {key: value for key, value in inner.items() if key in ("description", "type")}
            return kept if kept.get("type") != "object" else {**kept, "additionalProperties": True}
        self._losses.note(pointer(path), "allOf", "kept", "merged into one schema")
        return made

    def _types(self, schema: dict[str, Any]) -> list[str] | None:
        """The types of a place, also if only its other keywords tell; None for a union or an open place."""
        declared = schema.get("type")
        if isinstance(declared, str):
            return [declared]
        if isinstance(declared, list) and declared:
            return [name for name in declared if isinstance(name, str)]
        if any(keyword in schema for keyword in _UNION):
            return None
        for name, keywords in _IMPLIED:
            if any(keyword in schema for keyword in keywords):
                return [name]
        return None

    def _typed(self, schema: dict[str, Any], name: str, path: Path, depth: int) -> Node:
        if name in ("object", "array") and depth >= STRICT_DEPTH:
            return self._text(schema, path, f"deeper than {STRICT_DEPTH} levels")
        if name == "object":
            return self._object(schema, path, depth)
        if name == "array":
            return self._array(schema, path, depth)
        return self._scalar(schema, name, path)

    # --- places of each kind -----------------------------------------------------------------------

    def _scalar(self, schema: dict[str, Any], name: str, path: Path) -> Node:
        made: dict[str, Any] = {"type": name}
        words: list[str] = []
        for keyword, value in schema.items():
            if keyword == "description" or self._keeps(keyword, value, name):
                made[keyword] = value
            elif keyword not in _SILENT:
                words += said(keyword, value, pointer(path), self._losses)
        kinds = frozenset((name, "integer")) if name == "number" else frozenset((name,))
        return Plain(described(made, words), kinds)

    @staticmethod
    def _keeps(keyword: str, value: Any, name: str) -> bool:
        if keyword == "pattern" and isinstance(value, str):
            return name == "string" and _OTHER_REGEX.search(value) is None
        if keyword == "format":
            return name == "string" and value in _FORMATS
        return keyword in _NUMBERS and name in ("integer", "number")

    def _enum(self, schema: dict[str, Any], path: Path) -> Node:
        values = list(schema["enum"]) if "enum" in schema else [schema["const"]]
        beside = {key: value for key, value in schema.items() if key not in ("enum", "const")}
        allowed = types_of(schema)
        values = [value for value in values if allowed is None or _is_of(value, allowed)]
        if "const" in schema:
            self._losses.note(pointer(path), "const", "kept", "as enum")
        if not values:
            return self._text(schema, path, "no value is allowed")
        if any(isinstance(value, (dict, list)) for value in values):
            self._losses.note(pointer(path), "enum", "kept", "as JSON text")
            made = {"type": "string", "enum": [json_text(value) for value in values]}
            return JsonText(self._with_words(made, beside, path))
        if self._is_long(values):
            self._losses.note(pointer(path), "enum", "weakened", "too many values")
            return self._scalar(beside | {"type": "string"}, "string", path)
        return Plain(self._with_words(_typed_enum(values), beside, path), frozenset(map(_kind, values)))

    @staticmethod
    def _is_long(values: list[Any]) -> bool:
        most, chars = LONG_ENUM
        texts = [value for value in values if isinstance(value, str)]
        return len(texts) > most and sum(map(len, texts)) > chars

    def _array(self, schema: dict[str, Any], path: Path, depth: int) -> Node:
        if "prefixItems" in schema or isinstance(schema.get("items"), list):
            return self._text(schema, path, "a list whose places differ")
        item = self._place(schema.get("items", True), (*path, "items"), depth + 1)
        rest: dict[str, Any] = {
            keyword: schema[keyword] for keyword in ("minItems", "maxItems") if keyword in schema
        }
        left = {key: value for key, value in schema.items() if key not in (*rest, "items", "type")}
        return Items(item, self._with_words(rest, left, path))

    def _is_open(self, schema: dict[str, Any]) -> bool:
        has_names = bool(schema.get("properties"))
        return not has_names and schema.get("additionalProperties", True) is not False

    def _object(self, schema: dict[str, Any], path: Path, depth: int) -> Node:
        if not self._is_open(schema):
            return self._members(schema, path, depth)
        values = schema.get("additionalProperties")
        is_map = isinstance(values, dict) and values and "patternProperties" not in schema
        if not is_map or schema.get("required"):
            return self._text(schema, path, "an object with any properties")
        self._losses.note(pointer(path), "additionalProperties", "kept", "as a list of keys and values")
        inner = self._place(values, (*path, "additionalProperties"), depth + 2)
        left = {key: value for key, value in schema.items() if key not in ("additionalProperties", "type")}
        words = self._with_words({}, left, path).get("description", "")
        return Pairs(inner, f"{words} (a list of keys and values)".lstrip())

    def _members(self, schema: dict[str, Any], path: Path, depth: int) -> Node:
        properties = schema.get("properties") or {}
        required = set(schema.get("required") or ())
        if missing := sorted(required - set(properties)):
            raise NotExpressible(f"it requires {missing[0]!r} and does not describe it", "describe it")
        if schema.get("additionalProperties") not in (None, False):
            note = "properties beyond those that are named cannot be given"
            self._losses.note(pointer(path), "additionalProperties", "weakened", note)
        members = {
            name: self._member(inside, (*path, "properties", name), depth, is_required=name in required)
            for name, inside in properties.items()
            if inside is not False
        }
        known = ("properties", "required", "additionalProperties", "type")
        left = {key: value for key, value in schema.items() if key not in known}
        if not path:
            left.pop("$schema", None)
        return Members(members, self._with_words({}, left, path).get("description", ""))

    def _member(self, schema: Any, path: Path, depth: int, *, is_required: bool) -> Member:
        node = self._place(schema, path, depth + 1)
        if is_required:
            return Member(node, is_required=True)
        if "null" in node.kinds:
            self._losses.note(pointer(path), "type", "weakened", "null stands for left out")
        is_null = isinstance(schema, dict) and schema.get("default", 0) is None
        return Member(node, is_required=False, is_null_by_default=is_null)

    # --- one of several ----------------------------------------------------------------------------

    def _several(self, schema: dict[str, Any], types: list[str], path: Path, depth: int) -> Node:
        described_here = {key: schema[key] for key in ("description",) if key in schema}
        others = [name for name in types if name != "null"]
        inner = {key: value for key, value in schema.items() if key not in ("description", "type")}
        parts: list[tuple[Any, Node]] = []
        for name in others:
            own = _of_type(inner, name) | {"type": name}
            parts.append((own, self._typed(own, name, path, depth)))
        if "null" in types:
            parts.append(({"type": "null"}, Plain({"type": "null"}, frozenset(("null",)))))
        if "default" in schema:
            said("default", schema["default"], pointer(path), self._losses)
        return self._choice(parts, described_here, path)

    def _union(self, schema: dict[str, Any], path: Path, depth: int) -> Node:
        keyword = next((name for name in _UNION if schema.get(name)), None)
        if keyword is None:
            return self._text(schema, path, "any JSON value")
        if keyword == "oneOf":
            self._losses.note(pointer(path), "oneOf", "weakened", "as anyOf")
        parts = [
            (part, self._place(part, (*path, keyword, str(number)), depth))
            for number, part in enumerate(schema[keyword])
            if part is not False
        ]
        left = {key: value for key, value in schema.items() if key != keyword}
        return self._choice(parts, left, path)

    def _choice(self, parts: list[tuple[Any, Node]], beside: dict[str, Any], path: Path) -> Node:
        """A choice, or JSON text if the alternatives could not be told apart when decoding."""
        nodes = [node for _, node in parts]
        words = self._with_words({}, beside, path).get("description", "")
        if len(parts) == 1 and not words:
            return nodes[0]
        if not _can_be_told_apart(nodes):
            return self._text(beside, path, "alternatives that look alike", words=words)
        if all(node.is_plain for node in nodes):
            joined = _joined(nodes, words)
            if "anyOf" not in joined.schema:
                self._losses.note(pointer(path), "anyOf", "kept", "as a list of types")
            return joined
        branches = [Branch(node, self._fits(schema), self._fits_encoded(node)) for schema, node in parts]
        self.has_choices = True
        return Choice(branches, words)

    def _fits(self, schema: Any) -> Callable[[Any], bool]:
        definitions = {key: self._root[key] for key in ("$defs",) if key in self._root}
        whole = {**definitions, **schema} if isinstance(schema, dict) else schema
        return _Lazily(lambda: whole)

    def _fits_encoded(self, node: Node) -> Callable[[Any], bool]:
        return _Lazily(lambda: {**node.schema, "$defs": self.definitions()})

    # --- references and words ----------------------------------------------------------------------

    def _reference(self, reference: str, path: Path, depth: int) -> Node:
        if reference in self._named:
            return self._named[reference][1]
        if reference == "#":
            return self._text(_EMPTY, path, "the whole again")
        target = look_up(self._root, reference[1:])
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", reference.rpartition("/")[2]) or "part"
        taken = {known for known, _ in self._named.values()}
        while name in taken:
            name += "_"
        node = Named(name)
        self._named[reference] = name, node
        node.target = self._place(target, tuple(steps_of(reference)), depth)
        return node

    def _text(self, schema: dict[str, Any], path: Path, why: str, *, words: str | None = None) -> Node:
        self._losses.note(pointer(path), "type", "kept", f"as JSON text: {why}")
        if words is None:
            words = str(self._with_words({}, schema, path).get("description", ""))
        what = "object" if schema.get("type") == "object" else "value"
        return JsonText({"type": "string", "description": f"{words} (a JSON {what}, as text)".lstrip()})

    def _with_words(self, made: dict[str, Any], beside: dict[str, Any], path: Path) -> dict[str, Any]:
        """The node with its description, and with all other keywords described in it."""
        words: list[str] = []
        for keyword, value in beside.items():
            if keyword not in _SILENT:
                words += said(keyword, value, pointer(path), self._losses)
        text = beside.get("description")
        return described({**made, "description": text} if isinstance(text, str) and text else made, words)


class _Lazily:
    """A validator that is compiled on first use: most are never used."""

    def __init__(self, schema: Callable[[], Any]) -> None:
        self._schema = schema
        self._check: Callable[[Any], bool] | None = None

    def __call__(self, value: Any) -> bool:
        if self._check is None:
            made = jsonschema_rs.Draft202012Validator(self._schema(), **ENGINE_OPTIONS)
            self._check = made.is_valid
        return self._check(value)


def _can_be_told_apart(nodes: list[Node]) -> bool:
    """Whether each rewritten alternative shares its JSON type with no other, objects aside."""
    for node in nodes:
        if node.is_plain or isinstance(node, Choice):
            continue
        for other in nodes:
            if other is not node and (node.kinds & other.kinds) - {"object"}:
                return False
    return not any(isinstance(node, Choice) for node in nodes) or len(nodes) == 1


def _joined(nodes: list[Node], words: str) -> Node:
    """Alternatives that need no rewriting."""
    kinds = frozenset().union(*(node.kinds for node in nodes))
    schemas: list[dict[str, Any]] = []
    for node in nodes:
        schemas += node.schema["anyOf"] if set(node.schema) == {"anyOf"} else [node.schema]
    unique = [schema for number, schema in enumerate(schemas) if schema not in schemas[:number]]
    made: dict[str, Any] = _as_types(unique) or {"anyOf": unique}
    if len(unique) == 1:
        made = dict(unique[0])
    if words:
        made["description"] = words
    return Plain(made, kinds)


def _as_types(schemas: list[dict[str, Any]]) -> dict[str, Any] | None:
    """`{type: X}` and `{type: null}` as `{type: [X, null]}`."""
    if len(schemas) != 2 or schemas[1] != {"type": "null"} or not isinstance(schemas[0].get("type"), str):
        return None
    first = schemas[0]
    if first["type"] in ("object", "array") or "enum" in first:
        return None
    return {**first, "type": [first["type"], "null"]}


def _of_type(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """Of a schema for several types, the keywords that apply to one."""
    foreign = {keyword for other, keywords in _IMPLIED for keyword in keywords if other != name}
    own = {keyword for other, keywords in _IMPLIED for keyword in keywords if other == name}
    if name == "integer":
        own |= set(_NUMBERS)
    return {key: value for key, value in schema.items() if key not in foreign - own and key != "default"}


def _typed_enum(values: list[Any]) -> dict[str, Any]:
    """An enum with the types of its values."""
    kinds = list(dict.fromkeys(map(_kind, values)))
    if set(kinds) >= {"integer", "number"}:
        kinds.remove("integer")
    known = [kind for kind in kinds if kind != "null"]
    if len(known) <= 1:
        return {"type": kinds[0] if len(kinds) == 1 else [*known, "null"], "enum": values}
    parts = [{"type": kind, "enum": [value for value in values if _counts_as(value, kind)]} for kind in kinds]
    return {"anyOf": parts}


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names = {int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return next(name for kind, name in names.items() if isinstance(value, kind))


def _counts_as(value: Any, kind: str) -> bool:
    own = _kind(value)
    return own == kind or (kind == "number" and own == "integer")


def _is_of(value: Any, types: frozenset[str]) -> bool:
    is_whole = isinstance(value, float) and value.is_integer() and "integer" in types
    return is_whole or any(_counts_as(value, name) for name in types)
