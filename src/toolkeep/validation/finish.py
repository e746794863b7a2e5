"""Finish validated arguments: fill in defaults, and turn `1.0` into an int where the schema wants an integer.

Runs after validation (VAL-9): a default that was filled in before could hide a fault. Built once from the
schema; a default that violates its own schema is never applied.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any

from toolkeep.json_values.frozen import thaw
from toolkeep.json_values.pointers import look_up
from toolkeep.limits import SCHEMA_NODES
from toolkeep.validation.close_objects import WORDS, in_place
from toolkeep.validation.cost import TooCostly
from toolkeep.validation.schema_keywords import Schema, scalars_of, types_of

_FEW = 8


class Finisher:
    """Finishes the values at one place of a schema."""

    __slots__ = (
        "defaults", "few_integers", "fillers", "holders", "is_integer", "is_only_integers", "items", "known",
        "many_integers", "nested", "others", "positions",
    )  # fmt: skip

    def __init__(self) -> None:
        self.is_integer = False
        self.is_only_integers = False
        """Whether only integer properties of an object are finished here."""
        self.defaults: tuple[tuple[str, Any], ...] = ()
        """Immutable defaults, which calls can share."""
        self.fillers: tuple[tuple[str, Any], ...] = ()
        """Objects and arrays: each call gets its own copy, or one call could change the default of the
        next."""
        self.holders: dict[str, dict[str, Any]] = {}
        """The schemas that state the defaults."""
        self.few_integers: tuple[str, ...] = ()
        self.many_integers: frozenset[str] = frozenset()
        """The properties that are integers, in one or the other."""
        self.nested: dict[str, Finisher] = {}
        self.others: Finisher | None = None
        """What is finished under names that are not listed."""
        self.known: frozenset[str] = frozenset()
        self.items: Finisher | None = None
        self.positions: tuple[Finisher | None, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether this place itself has anything to finish."""
        return bool(
            self.is_integer or self.defaults or self.fillers or self.few_integers or self.many_integers
        )

    def finish_object(self, value: dict[str, Any]) -> None:
        """Finish an object in place.

        If the schema lists many properties, loop over those of the call instead: a schema may list a thousand
        and a call hold ten thousand empty objects.
        """
        for name in self.few_integers:
            number = value.get(name)
            if number.__class__ is float:
                value[name] = _whole(number)
        if self.many_integers:
            self._finish_many_integers(value)
        for name, default in self.defaults:
            if name not in value:
                value[name] = default
        for name, default in self.fillers:
            if name not in value:
                value[name] = thaw(default)
        if self.nested or self.others is not None:
            self._finish_inside(value)

    def _finish_inside(self, value: dict[str, Any]) -> None:
        if self.others is not None:
            known = self.known  # a set difference would visit all names of the schema
            for name in [name for name in value if name not in known]:
                value[name] = self.others.finish(value[name])
        for name in value if len(value) < len(self.nested) else self.nested:
            if name in value and name in self.nested:
                value[name] = self.nested[name].finish(value[name])

    def children(self, value: Any) -> Iterator[tuple["Finisher", Any]]:
        """The children of a value that are finished, with their finishers."""
        if isinstance(value, dict):
            if self.others is not None:
                yield from ((self.others, inside) for name, inside in value.items() if name not in self.known)
            for name in value if len(value) < len(self.nested) else self.nested:
                if name in value and name in self.nested:
                    yield self.nested[name], value[name]
        elif isinstance(value, list):
            places = self.positions[: len(value)]
            yield from ((place, value[i]) for i, place in enumerate(places) if place is not None)
            if self.items is not None:
                yield from ((self.items, inside) for inside in value[len(self.positions) :])

    def inside(self) -> Iterator["Finisher"]:
        """The finishers of the direct children."""
        yield from self.nested.values()
        yield from (place for place in (self.others, self.items, *self.positions) if place is not None)

    def with_all_inside(self) -> list["Finisher"]:
        """This finisher and every one below it, each once."""
        found = {id(self): self}
        waiting = [self]
        while waiting:
            for place in waiting.pop().inside():
                if id(place) not in found:
                    found[id(place)] = place
                    waiting.append(place)
        return list(found.values())

    def _finish_many_integers(self, value: dict[str, Any]) -> None:
        for name, number in value.items():
            if number.__class__ is float and name in self.many_integers:
                value[name] = _whole(number)

    def finish(self, value: Any) -> Any:
        """Finish any value; objects and arrays in place."""
        kind = value.__class__
        if kind is dict:
            self.finish_object(value)
        elif kind is list:
            for index, inside in enumerate(self.positions[: len(value)]):
                if inside is not None:
                    value[index] = inside.finish(value[index])
            if self.items is not None:
                self._finish_items(value, len(self.positions))
        elif kind is float and self.is_integer:
            return _whole(value)
        return value

    def _finish_items(self, values: list[Any], start: int) -> None:
        items = self.items
        if items is None:
            return
        if items.is_only_integers and not start:
            # Rows of a table: one loop for each column takes a third of the time.
            for name in items.few_integers:
                for row in values:
                    if row.__class__ is dict and row.get(name).__class__ is float:
                        row[name] = _whole(row[name])
        else:
            values[start:] = map(items.finish, values[start:])


def _whole(number: Any) -> Any:
    return int(number) if number.is_integer() else number


def make_finisher(
    root: dict[str, Any], *, never_applied: AbstractSet[int], mends_integers: bool = True
) -> Finisher | None:
    """The finisher of a tool's arguments, or None where there is nothing to finish.

    `never_applied` holds the ids of the schemas whose default is not applied; `mends_integers` is False for
    arguments whose integers are ints already.
    """
    maker = _Maker(root, never_applied, mends_integers=mends_integers)
    finisher = maker.make(root)
    maker.prune()
    return finisher if finisher.is_needed or finisher.nested or finisher.others else None


class _Maker:
    def __init__(
        self, root: dict[str, Any], never_applied: AbstractSet[int], *, mends_integers: bool
    ) -> None:
        self.root = root
        self._mends_integers = mends_integers
        self._never_applied = never_applied
        self._made: dict[tuple[frozenset[int], bool], Finisher] = {}
        self._unfilled: list[tuple[Finisher, list[dict[str, Any]], bool]] = []

    def make(self, root: dict[str, Any]) -> Finisher:
        finisher = self._place([root], adds=True)
        while self._unfilled:
            place, schemas, adds = self._unfilled.pop()
            self._fill(place, schemas, adds=adds)
        return finisher

    def _place(self, schemas: list[Schema], *, adds: bool) -> Finisher:
        """The finisher of a place where these schemas apply; filled in later, because it may be recursive.

        `adds` says whether defaults may be added: no schema above depends on which properties exist.
        """
        different = {id(schema): schema for schema in schemas if isinstance(schema, dict)}
        key = (frozenset(different), adds)
        if key not in self._made:
            if len(self._made) == SCHEMA_NODES:
                raise TooCostly(f"has more than {SCHEMA_NODES} kinds of places", "refer less often")
            self._made[key] = Finisher()
            self._unfilled.append((self._made[key], list(different.values()), adds))
        return self._made[key]

    def _fill(self, finisher: Finisher, schemas: list[dict[str, Any]], *, adds: bool) -> None:
        parts = [part for schema in schemas for part in in_place(schema, self.root, with_tests=False)]
        adds = adds and len(schemas) == 1 and all(map(_LOOKING.isdisjoint, parts))
        declared = [types for part in parts if (types := types_of(part)) is not None]
        if self._mends_integers:
            is_number = any("number" in types for types in declared)
            finisher.is_integer = not is_number and any("integer" in types for types in declared)
        self._fill_properties(finisher, parts, adds=adds)
        self._fill_items(finisher, parts, adds=adds)

    def _fill_properties(self, finisher: Finisher, parts: list[dict[str, Any]], *, adds: bool) -> None:
        by_name: dict[str, list[Schema]] = {}
        for part in parts:
            for name, schema in part.get("properties", {}).items():
                by_name.setdefault(name, []).append(schema)
        finisher.nested = {
            name: self._place(inside, adds=adds)
            for name, inside in by_name.items()
            if not all(map(_stays, inside))
        }
        others: list[Schema] = [s for part in parts for s in part.get("patternProperties", {}).values()]
        others += [s for p in parts if isinstance(s := p.get("additionalProperties"), dict)]
        if others:
            finisher.others, finisher.known = self._place(others, adds=adds), frozenset(by_name)
        speaking = [part for part in parts if not _SPEAKING.isdisjoint(part)]
        finisher.holders = dict(self._holders(speaking[0])) if adds and len(speaking) == 1 else {}
        defaults = [(name, holder["default"]) for name, holder in finisher.holders.items()]
        finisher.defaults = tuple((n, d) for n, d in defaults if not isinstance(d, (dict, list)))
        finisher.fillers = tuple((n, d) for n, d in defaults if isinstance(d, (dict, list)))

    def _fill_items(self, finisher: Finisher, parts: list[dict[str, Any]], *, adds: bool) -> None:
        listed = [p for part in parts for k in ("prefixItems", "items") if isinstance(p := part.get(k), list)]
        longest = max(map(len, listed), default=0)
        finisher.positions = tuple(
            self._place([schemas[index] for schemas in listed if index < len(schemas)], adds=adds)
            for index in range(longest)
        )
        every = [part["items"] for part in parts if isinstance(part.get("items"), dict)]
        finisher.items = self._place(every, adds=adds) if every else None

    def _holders(self, part: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """The properties of an object that have a default, and the schemas that state it."""
        required = part.get("required", ())
        for name, inside in part.get("properties", {}).items():
            holder = _holder_of_default(inside, self.root)
            if holder and name not in required and id(holder) not in self._never_applied:
                yield name, holder

    def prune(self) -> None:
        """Remove the places below which there is nothing to finish."""
        needed = self._needed()
        for finisher in self._made.values():
            kept = {name: inside for name, inside in finisher.nested.items() if id(inside) in needed}
            integers = [name for name, inside in kept.items() if _is_leaf_integer(inside, needed)]
            finisher.few_integers = tuple(integers) if len(integers) <= _FEW else ()
            finisher.many_integers = frozenset(integers) if len(integers) > _FEW else frozenset()
            finisher.nested = {name: inside for name, inside in kept.items() if name not in integers}
            finisher.items = finisher.items if id(finisher.items) in needed else None
            finisher.others = finisher.others if id(finisher.others) in needed else None
            finisher.positions = tuple(p if id(p) in needed else None for p in finisher.positions)
            rest = (
                finisher.others,
                finisher.many_integers,
                finisher.defaults,
                finisher.fillers,
                finisher.nested,
                finisher.items,
                finisher.positions,
            )
            finisher.is_only_integers = not any(rest) and not finisher.is_integer

    def _needed(self) -> set[int]:
        """The places that have something to finish, themselves or below."""
        needed = {id(finisher) for finisher in self._made.values() if finisher.is_needed}
        holding = [(id(finisher), _inside_ids(finisher)) for finisher in self._made.values()]
        while more := {holder for holder, inside in holding if holder not in needed and needed & inside}:
            needed |= more
        return needed


_LOOKING = frozenset(
    (
        "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas",
        "maxProperties", "propertyNames", "patternProperties", "uniqueItems", "contains", "const", "enum",
    )
)  # fmt: skip
"""Keywords that depend on which properties exist: adding a default could make a valid call invalid."""

_SPEAKING = frozenset(("properties", "additionalProperties", "unevaluatedProperties"))
"""Where two parts of a place say one of these, the default of one may be none to the other."""


def _holder_of_default(schema: Schema, root: dict[str, Any]) -> dict[str, Any] | None:
    """The property itself, or the definition that it only references, whichever states a default."""
    if isinstance(schema, dict) and "$ref" in schema and schema.keys() <= _ONLY_REFERS:
        schema = look_up(root, schema["$ref"][1:])
    return schema if isinstance(schema, dict) and "default" in schema else None


_ONLY_REFERS = WORDS | {"$ref"}


def _stays(schema: Schema) -> bool:
    """Whether a value certainly stays unchanged."""
    scalars = scalars_of(schema)
    return bool(scalars) and "integer" not in scalars


def _inside_ids(finisher: Finisher) -> set[int]:
    inside = {id(f) for f in finisher.nested.values()} | {id(f) for f in finisher.positions}
    return inside | {id(finisher.items), id(finisher.others)}


def _is_leaf_integer(finisher: Finisher, needed: set[int]) -> bool:
    return (
        finisher.is_integer
        and not finisher.defaults
        and not finisher.fillers
        and not (needed & _inside_ids(finisher))
    )
