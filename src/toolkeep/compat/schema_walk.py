"""Compare two schemas place by place, following references and counting steps.

Each pair is compared once. Where the meaning of a subschema depends on its siblings, nothing is compared in
detail: it is equal, including references, or it is `CHANGED`.
"""

from collections.abc import Iterable
from typing import Any, Final

from toolkeep.compat.annotation_changes import from_to, reworded, words_between
from toolkeep.compat.change_effects import Effect, SchemaChange
from toolkeep.compat.keyword_changes import HANDLERS, other
from toolkeep.compat.property_changes import compare_properties
from toolkeep.compat.schema_reader import (
    ANNOTATIONS,
    ANYTHING,
    COMPOSERS,
    DEFINITIONS,
    OBJECTS,
    RELEVANT,
    bare,
    is_equal,
    look_up,
    references_in,
    types_taken,
    without_definitions,
)
from toolkeep.validation.schema_keywords import Schema

_STEPS: Final = 20_000
"""Pairs of schemas; a second at most. Beyond, the answer is "changed", which needs a review."""
_DEPTH: Final = 60
"""Deeper than a schema may be nested, so only references reach it; below Python's recursion limit."""
_CHANGES: Final = 200
"""Nobody reviews more one by one."""
_OF_PROPERTIES: Final = ("properties", "required", "additionalProperties", "unevaluatedProperties")


class _TooMuch(Exception):
    """The schemas are too large to compare in detail."""


class Walk:
    """One comparison: both roots, and the differences so far."""

    def __init__(self, old_root: dict[str, Any], new_root: dict[str, Any], *, closes: bool) -> None:
        self.found: list[SchemaChange] = []
        self.old_root, self.new_root, self.closes = old_root, new_root, closes
        self._seen: set[tuple[int, int, bool]] = set()
        self._steps = 0
        self._depth = 0

    def compare_roots(self, place: str) -> None:
        """Record the differences; a single change if there are too many."""
        try:
            self.compare(self.old_root, self.new_root, place, is_top=True)
        except _TooMuch:
            what = "changed in too many places to tell"
            self.found = [SchemaChange(place, Effect.CHANGED, what, self.old_root, self.new_root)]

    def compare(self, old: Schema, new: Schema, place: str, *, is_top: bool = False) -> None:
        """Record the differences of two schemas of one place, once for each pair."""
        old, new = _followed(old, self.old_root), _followed(new, self.new_root)
        key = (id(old), id(new), is_top and self.closes)
        if key in self._seen:
            return
        self._seen.add(key)
        self._count()
        self._depth += 1
        if not isinstance(old, dict) or not isinstance(new, dict):
            self._booleans(old, new, place)
        elif self._is_composed(old, new):
            self._whole(old, new, place)
        else:
            self._keywords(old, new, place, is_top=is_top)
        self._depth -= 1

    def refers_alike(self, value: Any) -> bool:
        """Whether everything that an unchanged value references is unchanged too."""
        waiting, met = list(references_in(value)), set[str]()
        while waiting:
            reference = waiting.pop()
            if reference in met:
                continue
            met.add(reference)
            self._count()
            before, after = look_up(self.old_root, reference), look_up(self.new_root, reference)
            if not is_equal(bare(before), bare(after)):
                return False
            waiting += references_in(before)
        return True

    def note(self, place: str, effect: Effect, what: str, before: Any = None, after: Any = None) -> None:
        """Record a difference."""
        self.found.append(SchemaChange(place, effect, what, before, after))
        if len(self.found) > _CHANGES:
            raise _TooMuch

    def noted(
        self, keyword: str, effect: Effect, old: dict[str, Any], new: dict[str, Any], place: str
    ) -> None:
        """Record a keyword whose value differs."""
        what = f"{effect}: {keyword} {from_to(old, new, keyword)}"
        self.note(place, effect, what, old.get(keyword), new.get(keyword))

    def _add(self, changes: Iterable[SchemaChange]) -> None:
        for change in changes:
            self.note(change.place, change.effect, change.what, change.before, change.after)

    def _booleans(self, old: Schema, new: Schema, place: str) -> None:
        if old is new:
            return
        if old is False:
            self.note(place, Effect.WIDENED, "widened: takes values now", old, new)
        elif new is False:
            self.note(place, Effect.NARROWED, "narrowed: accepts no value any longer", old, new)
        else:  # `true` accepts what `{}` accepts
            before, after = (ANYTHING if schema is True else schema for schema in (old, new))
            self.compare(before, after, place)

    def _whole(self, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        """A composed place: what closes it, and what remains, depends on all subschemas together."""
        if is_equal(without_definitions(old), without_definitions(new)) and self.refers_alike(old):
            self._add(reworded(old, {**new, **{k: v for k, v in old.items() if k in DEFINITIONS}}, place))
        else:
            self.note(place, Effect.CHANGED, "changed: is composed differently", old, new)

    def _is_composed(self, old: dict[str, Any], new: dict[str, Any]) -> bool:
        if "unevaluatedItems" in old or "unevaluatedItems" in new:
            return True
        for schema, root in ((old, self.old_root), (new, self.new_root)):
            if any(part in schema for part in (*COMPOSERS, "$ref")) and self._mentions_objects(schema, root):
                return True
        return False

    def _mentions_objects(self, schema: Schema, root: dict[str, Any]) -> bool:
        """Whether a subschema for the same value lists properties."""
        stack, met = [schema], set[int]()
        while stack:
            here = _followed(stack.pop(), root)
            if not isinstance(here, dict) or id(here) in met:
                continue
            met.add(id(here))
            self._count()
            if any(keyword in here for keyword in OBJECTS):
                return True
            for keyword in (*COMPOSERS, "$ref"):
                inside = here.get(keyword)
                if keyword == "$ref":
                    stack.append(look_up(root, inside) or ANYTHING)
                elif isinstance(inside, list):
                    stack += inside
                elif isinstance(inside, dict):
                    stack += list(inside.values()) if keyword == "dependentSchemas" else [inside]
        return False

    def _keywords(self, old: dict[str, Any], new: dict[str, Any], place: str, *, is_top: bool) -> None:
        self._add(words_between(old, new, place))
        spoken_of = types_taken(old) & types_taken(new)
        if {"integer", "number"} & types_taken(old) and {"integer", "number"} & types_taken(new):
            spoken_of |= {"integer", "number"}
        handled = {*ANNOTATIONS, *DEFINITIONS, *_OF_PROPERTIES}
        if is_top and self.closes:
            handled.add("type")  # arguments are an object, stated or not
        if "object" in spoken_of:
            compare_properties(self, old, new, place, is_top=is_top)
        for keyword in {**old, **new}:
            relevant = RELEVANT.get(keyword)
            if keyword not in handled and (relevant is None or relevant & spoken_of):
                HANDLERS.get(keyword, other)(self, keyword, old, new, place)

    def _count(self) -> None:
        self._steps += 1
        if self._steps > _STEPS or self._depth > _DEPTH:
            raise _TooMuch


def _followed(schema: Schema, root: dict[str, Any]) -> Schema:
    """The target of a bare reference; a dangling one stands for itself."""
    for _ in range(_DEPTH):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            return schema
        if any(key not in ("$ref", *ANNOTATIONS, *DEFINITIONS) for key in schema):
            return schema
        target = look_up(root, schema["$ref"])
        if target is None:
            return schema
        schema = target
    return schema
