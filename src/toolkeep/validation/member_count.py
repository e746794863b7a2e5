"""Detect duplicate keys by counting members, at a fraction of the cost of the parser's own check (which
doubles the parser's time).

Each key of a JSON text has its own colon. If a call has as many members as its text has colons, no key occurs
twice. More colons, inside strings, prove nothing: then the text is parsed again with the parser's check. The
count relies on the schema, so it runs after validation.

Why duplicate keys are refused: parsers differ in which of the two they keep. The value that was validated and
approved must be the value that the tool reads.
"""

from typing import Any

from toolkeep.json_values.pointers import look_up
from toolkeep.validation.close_objects import InPlace
from toolkeep.validation.schema_keywords import Schema, is_leaf, is_scalar, types_of

_SPACED_COLONS = (b" :", b"\n:", b"\t:", b"\r:")
_FEW = 8


class Members:
    """Counts the members of the objects at one place."""

    __slots__ = ("flat", "has_flat_items", "inside", "items")

    def __init__(self) -> None:
        self.inside: dict[str, Members] = {}
        """The properties that can hold objects."""
        self.items: Members | None = None
        """The items of arrays at this place, if they can be objects."""
        self.has_flat_items = False
        """Whether arrays at this place hold only objects without nested objects."""
        self.flat: tuple[str, ...] = ()
        """A few properties that are always objects without nested objects; they are not in `inside`."""

    def count(self, value: dict[str, Any]) -> int:
        """The members of a valid object and of every object inside it."""
        total = len(value)
        for name in self.flat:  # a third of the time that the loop below takes
            if (child := value.get(name)) is not None:
                total += len(child)
        inside = self.inside
        if not inside:
            return total
        for name in value if len(value) < len(inside) else inside:
            child = value.get(name)
            if child.__class__ is dict:
                if members := inside.get(name):
                    total += members.count(child)
            elif child.__class__ is list and (members := inside.get(name)):
                total += members.count_items(child)
        return total

    def count_items(self, values: list[Any]) -> int:
        """The members of every object in an array at this place."""
        if self.has_flat_items:
            return sum(map(len, values))
        items = self.items
        if items is None:
            return 0
        total = 0
        for value in values:
            if value.__class__ is dict:
                total += items.count(value)
            elif value.__class__ is list:
                total += items.count_items(value)
        return total


def has_unique_keys(raw: bytes, members: int) -> bool:
    """Whether the text of a call with this many members certainly has no duplicate key, though its strings
    hold colons."""
    # With no space before a colon every key ends in `":`, which is rarer in strings than a colon.
    return raw.count(b'":') == members and not any(spaced in raw for spaced in _SPACED_COLONS)


def make_members(in_place: InPlace) -> Members | None:
    """The counter for a closed schema that is not open; None if its objects cannot be found by name."""
    try:
        return _Maker(in_place).make([in_place.root])
    except _Untold:
        return None


_CHOOSING = frozenset(
    ("anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "prefixItems", "additionalItems")
)
"""Keywords by which a subschema applies to some values at a place and not to others.

Taking a string for an object there would count its characters as members, and so make up for a duplicate key.
"""


class _Untold(Exception):
    """Objects may occur under names or at positions that the schema does not list."""


class _Maker:
    def __init__(self, in_place: InPlace) -> None:
        self.root = in_place.root
        self._in_place = in_place
        self._made: dict[frozenset[int], Members] = {}

    def make(self, schemas: list[Schema]) -> Members:
        """The counter of a place where these schemas apply; the schema is not recursive."""
        key = frozenset(map(id, schemas))
        if key not in self._made:
            self._made[key] = self._new(schemas)
        return self._made[key]

    def _new(self, schemas: list[Schema]) -> Members:
        members = Members()
        parts = [part for schema in schemas for part in self._in_place(schema)]
        by_name: dict[str, list[Schema]] = {}
        items: list[Schema] = []
        for part in parts:
            for name, schema in part.get("properties", {}).items():
                by_name.setdefault(name, []).append(schema)
            self._refuse_untold(part)
            if isinstance(part.get("items"), (dict, bool)):
                items.append(part["items"])
        members.inside = {
            name: self.make(inside) for name, inside in by_name.items() if self._may_hold_objects(inside)
        }
        if self._may_hold_objects(items):
            members.items = self.make(items)
        if len(schemas) == 1 and all(map(_CHOOSING.isdisjoint, parts)):
            self._find_flat(members, by_name, items)
        return members

    def _find_flat(self, members: Members, by_name: dict[str, list[Schema]], items: list[Schema]) -> None:
        """Note flat objects, at a place where every subschema certainly applies."""
        flat = tuple(n for n, inside in members.inside.items() if self._is_flat_object(by_name[n], inside))
        if len(flat) <= _FEW:
            members.flat = flat
            members.inside = {name: inside for name, inside in members.inside.items() if name not in flat}
        members.has_flat_items = members.items is not None and self._is_flat_object(items, members.items)

    def _is_flat_object(self, schemas: list[Schema], members: Members) -> bool:
        """Whether values that match all of the schemas are objects without nested objects."""
        return not members.inside and not members.flat and any(map(self._takes_objects_only, schemas))

    def _takes_objects_only(self, schema: Schema) -> bool:
        while isinstance(schema, dict) and "type" not in schema and isinstance(schema.get("$ref"), str):
            schema = look_up(self.root, schema["$ref"][1:])
        return isinstance(schema, dict) and types_of(schema) == frozenset(("object",))

    def _refuse_untold(self, part: dict[str, Any]) -> None:
        if is_leaf(part):
            return
        untold: list[Schema] = list(part.get("patternProperties", {}).values())
        for keyword in (
            "additionalProperties",
            "unevaluatedProperties",
            "additionalItems",
            "unevaluatedItems",
        ):
            untold += [part[keyword]] if isinstance(part.get(keyword), (dict, bool)) else []
        for keyword in ("prefixItems", "items"):
            untold += part[keyword] if isinstance(part.get(keyword), list) else []
        if self._may_hold_objects(untold):
            raise _Untold

    def _may_hold_objects(self, schemas: list[Schema]) -> bool:
        """Whether a value at such a place is or contains an object."""
        waiting = list(schemas)
        while waiting:
            schema = waiting.pop()
            if schema is True:
                return True
            if is_scalar(schema):
                continue
            for part in self._in_place(schema):
                types = types_of(part)
                listed = part.get("enum", [part["const"]] if "const" in part else None)
                if listed is not None:
                    if any(isinstance(value, (dict, list)) for value in listed):
                        return True
                elif types is None:
                    if not any(keyword in part for keyword in ("$ref", "allOf", "anyOf", "oneOf")):
                        return True
                elif "object" in types:
                    return True
                elif "array" in types:
                    waiting.append(part.get("items", True))
        return False
