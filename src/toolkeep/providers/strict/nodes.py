"""The nodes of a strict schema: each knows its external schema, and how to encode and decode values.

`encode` turns a value of the tool's own schema into what a strict model writes, `decode` the reverse.
`encode` raises `NotExpressible` for what the strict form cannot express. `decode` raises `Undecodable` for
ambiguous input, and leaves values of another shape alone: validation reports what is wrong with them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from toolkeep.limits import DEFAULT_LIMITS
from toolkeep.providers.schema_losses import NotExpressible
from toolkeep.validation.parse import NotStrictJson, as_bytes, parse_json_fully

MISSING: Final = object()
KEY, VALUE = "key", "value"


class Undecodable(ValueError):
    """A model's output that is ambiguous or means nothing."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.reason, self.fix = reason, fix


class Node(Protocol):
    """One place of a schema."""

    @property
    def schema(self) -> dict[str, Any]:
        """The schema for the provider."""

    @property
    def kinds(self) -> frozenset[str]:
        """The JSON types of the encoded value."""

    @property
    def is_plain(self) -> bool:
        """Whether encoded and decoded values are equal."""

    def encode(self, value: Any) -> Any:
        """Encode a value."""

    def decode(self, value: Any) -> Any:
        """Decode a value."""


class Plain(NamedTuple):
    """A place whose values need no rewriting."""

    schema: dict[str, Any]
    kinds: frozenset[str]
    is_plain: bool = True

    def encode(self, value: Any) -> Any:
        """The same."""
        return value

    def decode(self, value: Any) -> Any:
        """The same."""
        return value


class JsonText(NamedTuple):
    """A place that may hold anything, encoded as JSON in a string."""

    schema: dict[str, Any]
    kinds: frozenset[str] = frozenset(("string",))
    is_plain: bool = False

    def encode(self, value: Any) -> Any:
        """The value as text."""
        return json_text(value)

    def decode(self, value: Any) -> Any:
        """The value that the text holds."""
        if not isinstance(value, str):
            return value
        try:
            return parse_json_fully(as_bytes(value), depth=DEFAULT_LIMITS.argument_depth)
        except NotStrictJson as error:
            reason = f"a string should contain JSON but does not: {error.reason}"
            raise Undecodable(reason, "write the value as JSON text, a string in quotes") from error


def json_text(value: Any) -> str:
    """JSON text that keeps integers of any size."""
    try:
        return msgspec.json.encode(value).decode()
    except OverflowError:
        import json

        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Pairs(NamedTuple):
    """An object with arbitrary keys, encoded as a list of key-value pairs."""

    value: Node
    description: str = ""
    kinds: frozenset[str] = frozenset(("array",))
    is_plain: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """A list of closed objects."""
        pair = {
            "type": "object",
            "properties": {KEY: {"type": "string"}, VALUE: self.value.schema},
            "required": [KEY, VALUE],
            "additionalProperties": False,
        }
        made: dict[str, Any] = {"type": "array", "items": pair}
        return {**made, "description": self.description} if self.description else made

    def encode(self, value: Any) -> Any:
        """The members as pairs."""
        if not isinstance(value, dict):
            return value
        return [{KEY: key, VALUE: self.value.encode(inside)} for key, inside in value.items()]

    def decode(self, value: Any) -> Any:
        """The pairs as members."""
        if not isinstance(value, list) or not all(map(_is_pair, value)):
            return value
        made = {pair[KEY]: self.value.decode(pair[VALUE]) for pair in value}
        if len(made) != len(value):
            raise Undecodable("a list of keys and values has a key twice", "give each key once")
        return made


def _is_pair(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {KEY, VALUE} and isinstance(value[KEY], str)


class Items(NamedTuple):
    """A list."""

    item: Node
    rest: dict[str, Any]
    """The keywords beside `items`."""
    kinds: frozenset[str] = frozenset(("array",))

    @property
    def is_plain(self) -> bool:
        """As its items."""
        return self.item.is_plain

    @property
    def schema(self) -> dict[str, Any]:
        """An array."""
        return {"type": "array", **self.rest, "items": self.item.schema}

    def encode(self, value: Any) -> Any:
        """Item by item."""
        return list(map(self.item.encode, value)) if isinstance(value, list) else value

    def decode(self, value: Any) -> Any:
        """Item by item."""
        return list(map(self.item.decode, value)) if isinstance(value, list) else value


class Member(NamedTuple):
    """A property of an object."""

    node: Node
    is_required: bool
    is_null_by_default: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """Every property is required; an optional one may be null."""
        return self.node.schema if self.is_required else nullable(self.node.schema)

    def encode(self, value: Any) -> Any:
        """The value, or null for none."""
        if value is MISSING:
            return None
        if value is None and not self.is_required and not self.is_null_by_default:
            raise NotExpressible("null means that an argument is omitted", "leave it out")
        return self.node.encode(value)


class Members:
    """An object with known properties."""

    kinds = frozenset(("object",))
    is_plain = False

    def __init__(self, members: Mapping[str, Member], description: str = "") -> None:
        self._members = members
        self._description = description

    @property
    def schema(self) -> dict[str, Any]:
        """A closed object, everything required."""
        made: dict[str, Any] = {"type": "object"}
        if self._description:
            made["description"] = self._description
        made["properties"] = {name: member.schema for name, member in self._members.items()}
        return {**made, "required": list(self._members), "additionalProperties": False}

    def encode(self, value: Any) -> Any:
        """Every property, null if it is missing."""
        if not isinstance(value, dict):
            return value
        if unknown := [name for name in value if name not in self._members]:
            raise NotExpressible(f"{unknown[0]!r} is not a known property", "leave it out")
        return {name: member.encode(value.get(name, MISSING)) for name, member in self._members.items()}

    def decode(self, value: Any) -> Any:
        """Without the optional properties that are null."""
        if not isinstance(value, dict):
            return value
        made = {}
        for name, inside in value.items():
            member = self._members.get(name)
            if member is None:
                made[name] = inside
            elif inside is not None or member.is_required:
                made[name] = member.node.decode(inside)
        return made


class Wrapped(NamedTuple):
    """An open root: all of it is below one property."""

    inner: Node
    name: str
    kinds: frozenset[str] = frozenset(("object",))
    is_plain: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """An object with one property."""
        return {
            "type": "object",
            "properties": {self.name: self.inner.schema},
            "required": [self.name],
            "additionalProperties": False,
        }

    def encode(self, value: Any) -> Any:
        """The whole below its property."""
        return {self.name: self.inner.encode(value)}

    def decode(self, value: Any) -> Any:
        """What stands below it."""
        if not isinstance(value, dict) or value.keys() != {self.name}:
            return value
        return self.inner.decode(value[self.name])


class Named:
    """A reference to a definition, which may be recursive."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.target: Node | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """A reference."""
        return {"$ref": f"#/$defs/{self._name}"}

    @property
    def kinds(self) -> frozenset[str]:
        """Those of its target; while that is being built, object."""
        return self.target.kinds if self.target is not None else frozenset(("object",))

    @property
    def is_plain(self) -> bool:
        """As its target; a recursive one is an object, which is not plain."""
        return self.target is not None and self.target.is_plain

    def encode(self, value: Any) -> Any:
        """As its target."""
        return value if self.target is None else self.target.encode(value)

    def decode(self, value: Any) -> Any:
        """As its target."""
        return value if self.target is None else self.target.decode(value)


class Branch(NamedTuple):
    """One alternative: its node, and whether a value matches it, decoded and encoded."""

    node: Node
    fits: Callable[[Any], bool]
    fits_encoded: Callable[[Any], bool]


class Choice(NamedTuple):
    """One of several."""

    branches: Sequence[Branch]
    description: str = ""
    is_plain: bool = False

    @property
    def kinds(self) -> frozenset[str]:
        """Those of all."""
        return frozenset().union(*(branch.node.kinds for branch in self.branches))

    @property
    def schema(self) -> dict[str, Any]:
        """Any of them."""
        made: dict[str, Any] = {"anyOf": [branch.node.schema for branch in self.branches]}
        return {**made, "description": self.description} if self.description else made

    def encode(self, value: Any) -> Any:
        """Encode as the first alternative that matches and decodes to the same value."""
        for branch in self.branches:
            if branch.fits(value):
                encoded = branch.node.encode(value)
                try:
                    if self.decode(encoded) == value:
                        return encoded
                except Undecodable:
                    continue
        raise NotExpressible("no alternative says it and nothing else", "choose another value")

    def decode(self, value: Any) -> Any:
        """Decode as the matching alternative; if several match, they must give the same value."""
        fitting = [branch.node for branch in self.branches if branch.fits_encoded(value)]
        rewritten = [node for node in fitting if not node.is_plain]
        # Comparing two means decoding both, at every level again: the cost doubles with each.
        if len(rewritten) > 1:
            raise Undecodable("a value could mean several things", "choose the alternative more clearly")
        if not rewritten:
            return value
        decoded = rewritten[0].decode(value)
        if len(fitting) > 1 and decoded != value:
            raise Undecodable("a value could mean several things", "choose the alternative more clearly")
        return decoded


def nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, or null."""
    declared = schema.get("type")
    if "anyOf" in schema:
        if any(_takes_null(part) for part in schema["anyOf"]):
            return schema
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "$ref" in schema or declared in ("object", "array"):
        outer = {"description": schema["description"]} if "description" in schema else {}
        inner = {key: value for key, value in schema.items() if key != "description"}
        return {**outer, "anyOf": [inner, {"type": "null"}]}
    types = declared if isinstance(declared, list) else [declared]
    made = {**schema, "type": [*types, *(["null"] if "null" not in types else [])]}
    if made["type"] == ["null"]:
        made["type"] = "null"
    if "enum" in made and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]
    return made


def _takes_null(schema: dict[str, Any]) -> bool:
    declared = schema.get("type")
    return declared == "null" or (isinstance(declared, list) and "null" in declared)
