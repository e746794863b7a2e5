"""Builds the Cedar schema of one tool: fixed entity types, and a record for its arguments.

In comes the JSON Schema of the parameters; out goes the `Shape` that Cedar can express, and the whole schema
as JSON. Secret arguments and those that Cedar cannot express are left out of the record. One schema per tool:
Cedar takes seconds to parse one for all tools.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any, Final

import msgspec

from toolkeep.definitions.parameter_marks import TOUCHES_KEY, Touches, is_secret
from toolkeep.definitions.vocabulary import TouchForm
from toolkeep.json_values.frozen import objects_in
from toolkeep.json_values.pointers import referred

LONGS: Final = (-(2**63), 2**63 - 1)
"""Range of Cedar's `Long`."""

DEPTH: Final = 8
"""Maximum nesting of records and sets; nobody writes policies that read deeper."""

ATTRIBUTES: Final = 1_000
"""Maximum number of attributes for one tool, nested ones included. Real tools need at most 100."""

STEPS: Final = 10_000
"""Maximum number of subschemas visited for one tool, against exponential fan-out of references."""

CALL: Final = "call"
SEE: Final = "see"

_STRING: Final = {"type": "String"}
_STRINGS: Final = {"type": "Set", "element": _STRING}
_LONG: Final = {"type": "Long"}
_BOOL: Final = {"type": "Boolean"}
_DECIMAL: Final = {"type": "Extension", "name": "decimal"}

AGENT_ATTRIBUTES: Final[dict[str, Any]] = {"permissions": _STRINGS, "capabilities": _STRINGS}

TOOL_ATTRIBUTES: Final[dict[str, Any]] = {
    "danger": _LONG,
    "category": _STRING,
    "source": _STRING,
    "effects": _STRINGS,
    "requires": _STRINGS,
    "capabilities": _STRINGS,
    "isolation": _LONG,
    "is_built_in": _BOOL,
    "roles": _STRINGS,
    "consequential": _BOOL,
    "egress": _BOOL,
    "kind": _STRING,
    "version": _STRING,
}

CONTEXT_ATTRIBUTES: Final[dict[str, Any]] = {
    "roots": _STRINGS,
    "hosts": _STRINGS,
    "programs": _STRINGS,
    "databases": _STRINGS,
    "mail_domains": _STRINGS,
    "url_hosts": _STRINGS,
    "session": _STRING,
    "conversation": _STRING,
}
"""Context attributes other than `arguments` and those of flow."""

STATE_ATTRIBUTES: Final[dict[str, Any]] = {
    "after": _STRINGS,
    "hosts": _STRINGS,
    "opened": _BOOL,
    "secret": _BOOL,
    "wrote": _STRINGS,
}
ORIGIN_ATTRIBUTES: Final[dict[str, Any]] = {"origins": _STRINGS, "role": _STRING, "trusted": _BOOL}
FLOW_SECTIONS: Final = ("authority", "endorsed", "flow", "measures", "state")
"""Context attributes of flow (FLO-4)."""

Sections = Mapping[str, AbstractSet[str] | None]
"""The sections of flow that policies read, each with the names that are read in it; None for all."""

ENTITY_TYPES: Final = ("Agent", "Tool", "Category", "Source", "Action")


class Kind(Enum):
    """The JSON types that Cedar can represent."""

    TEXT = "string"
    WHOLE = "integer"
    DECIMAL = "number"
    TRUTH = "boolean"
    SET = "array"
    RECORD = "object"


_KINDS: Final = {kind.value: kind for kind in Kind}


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The Cedar type of one JSON Schema."""

    kind: Kind
    is_certain: bool = True
    """Whether Cedar can represent every value that the JSON Schema allows; otherwise the attribute is
    optional."""
    is_nullable: bool = False
    is_touched: bool = False
    """Whether it names a resource, so that policies see its canonical form only."""
    is_command: bool = False
    """Whether it is a command line (string or argv): policies see it as written."""
    element: "Shape | None" = None
    attributes: Mapping[str, "Shape"] = msgspec.field(default_factory=dict)
    required: frozenset[str] = frozenset()

    def to_cedar(self) -> dict[str, Any]:
        """The Cedar schema type in JSON."""
        if self.kind is Kind.RECORD:
            attributes = {
                name: {**shape.to_cedar(), "required": name in self.required}
                for name, shape in self.attributes.items()
            }
            return {"type": "Record", "attributes": attributes}
        if self.element is not None:
            return {"type": "Set", "element": self.element.to_cedar()}
        return dict(_PLAIN[self.kind])

    def only(self, names: AbstractSet[str]) -> "Shape":
        """The record reduced to these attributes."""
        attributes = {name: inside for name, inside in self.attributes.items() if name in names}
        return Shape(kind=Kind.RECORD, attributes=attributes, required=self.required & names)


_PLAIN: Final[dict[Kind, dict[str, Any]]] = {
    Kind.TEXT: _STRING,
    Kind.WHOLE: _LONG,
    Kind.DECIMAL: _DECIMAL,
    Kind.TRUTH: _BOOL,
}

NO_ARGUMENTS: Final = Shape(kind=Kind.RECORD)


def cedar_schema(
    arguments: Shape = NO_ARGUMENTS,
    attributes: Iterable[str] = CONTEXT_ATTRIBUTES,
    flow: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The Cedar schema for tools whose arguments have this shape.

    `attributes` are those of the context beside the arguments, `flow` the types of `flow_types`.
    """
    own = {name: CONTEXT_ATTRIBUTES[name] for name in attributes}
    context = {"arguments": arguments.to_cedar(), **own, **(flow or {})}
    return {
        "": {
            "entityTypes": {
                "Agent": {"shape": _record(AGENT_ATTRIBUTES)},
                "Category": {},
                "Source": {},
                "Tool": {"memberOfTypes": ["Category", "Source"], "shape": _record(TOOL_ATTRIBUTES)},
            },
            "actions": {CALL: _action(context), SEE: _action({})},
        }
    }


def context_type(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The type of the context of calls in a schema of `cedar_schema`."""
    found: dict[str, Any] = schema[""]["actions"][CALL]["appliesTo"]["context"]
    return found


def flow_types(sections: Sections, parameters: Iterable[str], measures: Iterable[str]) -> dict[str, Any]:
    """The types of the sections that are read, for a tool with these parameters."""
    known: dict[str, dict[str, Any]] = {
        "flow": {name: _record(ORIGIN_ATTRIBUTES) for name in parameters if is_expressible(name)},
        "measures": dict.fromkeys(measures, _DECIMAL),
        "state": STATE_ATTRIBUTES,
    }
    types: dict[str, Any] = {}
    for section, read in sections.items():
        if section in known:
            inside = known[section]
            types[section] = _record({name: inside[name] for name in inside if read is None or name in read})
        else:
            types[section] = _STRING if section == "authority" else _BOOL
    return types


def read_sections(paths: Iterable[tuple[str, ...]]) -> Sections:
    """Which sections of flow these paths below the context read; the empty path reads all of them."""
    sections: dict[str, set[str] | None] = {}
    for path in paths:
        for section in FLOW_SECTIONS if not path else path[:1]:
            if section not in FLOW_SECTIONS:
                continue
            if len(path) == 1 or not path or sections.get(section, ()) is None:
                sections[section] = None
            else:
                held = sections.setdefault(section, set())
                if held is not None:
                    held.add(path[1])
    return sections


def _record(attributes: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Record", "attributes": attributes}


def _action(context: dict[str, Any]) -> dict[str, Any]:
    applies = {"principalTypes": ["Agent"], "resourceTypes": ["Tool"], "context": _record(context)}
    return {"appliesTo": applies}


AGENT_TYPE: Final = _record(AGENT_ATTRIBUTES)
TOOL_TYPE: Final = _record(TOOL_ATTRIBUTES)


def read_shape(parameters: Mapping[str, Any]) -> Shape:
    """The Cedar record type of a tool's parameters.

    References are followed if they are local JSON Pointers, as in a compiled schema; others are left out.
    """
    shape = _Reader(parameters).read([parameters], depth=0, followed=frozenset())
    return shape if shape is not None and shape.kind is Kind.RECORD else NO_ARGUMENTS


def is_expressible(name: str) -> bool:
    """Whether a JSON key can be an attribute name: Cedar reserves the prefix `__`."""
    return not name.startswith("__") and is_unicode(name)


def is_unicode(text: str) -> bool:
    """Whether the text has no lone surrogate, which Cedar cannot represent."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


Refs = frozenset[str]


class _Inexpressible(Exception):
    pass


class _Parts(msgspec.Struct):
    """The subschemas that all apply to one value."""

    schemas: list[Mapping[str, Any]] = msgspec.field(default_factory=list)
    followed: Refs = frozenset()
    is_nullable: bool = False

    def values(self, keyword: str) -> list[Any]:
        return [schema[keyword] for schema in self.schemas if keyword in schema]


class _Reader:
    """Converts one JSON Schema, within a budget."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._steps = STEPS
        self._attributes = ATTRIBUTES
        self._has_bases = any("$id" in schema for schema in objects_in(root) if schema is not root)
        self._secret_names = frozenset(self._find_secret_names())

    def read(self, schemas: Sequence[Any], *, depth: int, followed: Refs) -> Shape | None:
        """The Cedar type of values that satisfy all schemas; None if there is none."""
        parts = _Parts(followed=followed)
        try:
            for schema in schemas:
                self._gather(schema, parts)
            types = _types(parts)
            if depth > DEPTH or len(types) != 1 or not types <= _KINDS.keys():
                return None
            return self._shape(_KINDS[types.pop()], parts, depth)
        except _Inexpressible:
            return None

    def _gather(self, schema: Any, parts: _Parts) -> None:
        """Collect the schema and its subschemas that apply to the same value."""
        self._steps -= 1
        if self._steps < 0 or not isinstance(schema, dict) or is_secret(schema):
            raise _Inexpressible
        parts.schemas.append(schema)
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if keyword in schema:
                self._follow(schema[keyword] if keyword == "$ref" else None, parts)
        for inside in schema.get("allOf", ()):
            self._gather(inside, parts)
        for keyword in ("anyOf", "oneOf"):
            self._choose(schema.get(keyword, ()), parts)
        # Secrecy or a touch mark that depends on the value cannot be decided here: hide the argument from
        # policies.
        if any(_is_marked(part) for test in _conditional(schema) for part in self._reached(test, _applied)):
            raise _Inexpressible

    def _follow(self, reference: Any, parts: _Parts) -> None:
        target = self._look_up(reference)
        # A nested `$id` changes the base URI of references, so that `#/…` may mean another target than the
        # one found.
        if self._has_bases or reference in parts.followed:
            raise _Inexpressible
        parts.followed |= {reference}
        self._gather(target, parts)

    def _look_up(self, reference: Any) -> Any:
        try:
            return referred(self._root, reference)
        except KeyError:
            raise _Inexpressible from None

    def _choose(self, alternatives: Sequence[Any], parts: _Parts) -> None:
        """A single non-null alternative determines the type; several only narrow it."""
        others = [schema for schema in alternatives if not _is_null(schema)]
        if len(others) < len(alternatives):
            parts.is_nullable = True
        if len(others) == 1:
            self._gather(others[0], parts)
        elif any(_is_marked(part) for other in others for part in self._reached(other, dict.values)):
            raise _Inexpressible

    def _reached(
        self, schema: Any, inside: Callable[[dict[str, Any]], Iterable[Any]]
    ) -> Iterator[dict[str, Any]]:
        """The schemas reachable through `$ref` and through what `inside` yields for each."""
        waiting, seen = [schema], set()
        while waiting:
            here = waiting.pop()
            if isinstance(here, list):
                waiting.extend(here)
            elif isinstance(here, dict) and id(here) not in seen:
                seen.add(id(here))
                yield here
                waiting.extend(inside(here))
                with contextlib.suppress(_Inexpressible):  # a dangling reference
                    waiting.append(self._look_up(str(here.get("$ref", "#/"))))

    def _find_secret_names(self) -> Iterator[str]:
        """Names of properties that any part of the schema marks secret, whatever the other parts say."""
        for part in objects_in(self._root):
            properties = part.get("properties")
            for name, schema in properties.items() if isinstance(properties, dict) else ():
                if any(map(is_secret, self._reached(schema, _applied))):
                    yield name

    def _shape(self, kind: Kind, parts: _Parts, depth: int) -> Shape | None:
        marks = parts.values(TOUCHES_KEY)
        # Canonicalizing a command line would leave only the program's path and hide its arguments from
        # policies.
        is_command = bool(marks) and all(map(_is_command, marks))
        is_touched = bool(marks) and not is_command
        is_nullable = parts.is_nullable or any("null" in _listed(types) for types in parts.values("type"))
        if kind is Kind.SET and is_command:
            shape = self._words(parts, depth)
        elif kind is Kind.SET:
            shape = self._set(parts, depth, is_touched=is_touched)
        elif marks and kind is not Kind.TEXT:
            shape = None
        elif kind is Kind.RECORD:
            shape = self._record(parts, depth)
        else:
            is_certain = kind is not Kind.DECIMAL and (kind is not Kind.WHOLE or _is_bounded(parts))
            shape = Shape(kind=kind, is_certain=is_certain, is_touched=is_touched, is_command=is_command)
        return _nullable(shape) if shape is not None and is_nullable else shape

    def _words(self, parts: _Parts, depth: int) -> Shape | None:
        """An argv list as one string, because a Cedar set has no order."""
        words = self._set(parts, depth, is_touched=False)
        element = None if words is None else words.element
        if element != Shape(kind=Kind.TEXT):  # not numbers, nulls, or words that name resources
            return None
        return Shape(kind=Kind.TEXT, is_command=True)

    def _set(self, parts: _Parts, depth: int, *, is_touched: bool) -> Shape | None:
        items = parts.values("items")
        if not items or parts.values("prefixItems") or not all(isinstance(item, dict) for item in items):
            return None
        element = self.read(items, depth=depth + 1, followed=parts.followed)
        if element is None or (is_touched and element.kind is not Kind.TEXT):
            return None
        if is_touched:
            element = Shape(kind=Kind.TEXT, is_certain=False, is_touched=True)
        # A record in a set that loses an attribute becomes another member, so such a set may have to be
        # omitted.
        is_certain = element.is_certain and not element.is_nullable and element.kind is not Kind.RECORD
        return Shape(kind=Kind.SET, element=element, is_certain=is_certain)

    def _record(self, parts: _Parts, depth: int) -> Shape | None:
        patterns = [schema for by_name in parts.values("patternProperties") for schema in by_name.values()]
        # Any property name may match a secret pattern, so no attribute is certain not to be secret.
        if any(is_secret(part) for schema in patterns for part in self._reached(schema, dict.values)):
            return None
        schemas: dict[str, list[Any]] = {}
        for properties in parts.values("properties"):
            for name, schema in properties.items():
                schemas.setdefault(name, []).append(schema)
        attributes: dict[str, Shape] = {}
        for name, speaking in schemas.items():
            shape = self.read(speaking, depth=depth + 1, followed=parts.followed)
            is_hidden = name in self._secret_names or not is_expressible(name)
            if shape is None or is_hidden or self._attributes <= 0:
                continue
            self._attributes -= 1
            attributes[name] = shape
        if not attributes:
            return None
        named = {name for required in parts.values("required") for name in required}
        certain = {n for n, shape in attributes.items() if shape.is_certain and not shape.is_nullable}
        return Shape(kind=Kind.RECORD, attributes=attributes, required=frozenset(named & certain))


def _nullable(shape: Shape) -> Shape:
    return Shape(
        kind=shape.kind,
        is_certain=shape.is_certain,
        is_nullable=True,
        is_touched=shape.is_touched,
        is_command=shape.is_command,
        element=shape.element,
        attributes=shape.attributes,
        required=shape.required,
    )


def _types(parts: _Parts) -> set[str]:
    """The types that all subschemas allow except null; empty if they are silent or contradict each other."""
    declared = [_widened(types) for types in parts.values("type")]
    if not declared:
        listed = parts.values("enum") + [[value] for value in parts.values("const")]
        declared = [{_TYPES.get(type(value), "") for value in values} for values in listed]
    types = set.intersection(*declared) - {"null"} if declared else set()
    return {"number"} if "number" in types and types <= {"number", "integer"} else types


def _widened(types: Any) -> set[str]:
    """In JSON Schema every integer is a number."""
    names = set(_listed(types))
    return names | {"integer"} if "number" in names else names


def _listed(types: Any) -> Sequence[str]:
    return [types] if isinstance(types, str) else types


_TYPES: Final = {str: "string", int: "integer", bool: "boolean", type(None): "null"}


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and (
        schema.get("type") in ("null", ["null"])
        or ("const" in schema and schema["const"] is None)
        or schema.get("enum") == [None]
    )


def _is_bounded(parts: _Parts) -> bool:
    """Whether every allowed integer fits into Cedar's `Long`."""
    types = parts.values("type")
    if not types or any("number" in _listed(declared) for declared in types):
        return False  # 1.0 may come as a float, which is no Long
    for values in parts.values("enum"):
        if all(type(value) is int and LONGS[0] <= value <= LONGS[1] for value in values):
            return True
    lowest = [bound for keyword in ("minimum", "exclusiveMinimum") for bound in parts.values(keyword)]
    highest = [bound for keyword in ("maximum", "exclusiveMaximum") for bound in parts.values(keyword)]
    return bool(lowest and highest) and max(lowest) >= LONGS[0] and min(highest) <= LONGS[1]


def _is_marked(schema: Mapping[str, Any]) -> bool:
    return is_secret(schema) or TOUCHES_KEY in schema


def _is_command(mark: Any) -> bool:
    try:
        return Touches.read(mark).form is TouchForm.ARGV
    except ValueError:  # an unreadable mark: treated as touched, so never shown raw
        return False


def _conditional(schema: Mapping[str, Any]) -> list[Any]:
    """Subschemas that apply to the same value conditionally."""
    return [schema[word] for word in ("not", "if", "then", "else") if word in schema] + _dependent(schema)


def _applied(schema: Mapping[str, Any]) -> list[Any]:
    """All subschemas that may apply to the same value."""
    return [schema[word] for word in ("allOf", "anyOf", "oneOf") if word in schema] + _conditional(schema)


def _dependent(schema: Mapping[str, Any]) -> list[Any]:
    dependents = schema.get("dependentSchemas")
    return list(dependents.values()) if isinstance(dependents, dict) else []
