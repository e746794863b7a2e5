"""What changed between two schemas of one place, and whether the place takes more or less than before.

`WIDENED` promises that everything that fitted still fits, `NARROWED` that nothing fits that did not before.
Where neither is sure it is `CHANGED`: careful rather than clever. Objects of arguments are closed as
`validation/closing.py` closes them; an output schema is taken as written. The steps of a comparison are
counted, so that no schema takes long.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final

import msgspec

from toolkeep.canonical import canonical_bytes
from toolkeep.validation.keywords import MAPS, Schema, children, pointer, types_of
from toolkeep.wording import echo, echo_name

_ANNOTATIONS: Final = ("title", "description", "examples", "example", "$comment", "deprecated")
_DEFINITIONS: Final = frozenset(("$defs", "definitions"))
_COMPOSERS: Final = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "not")
_OBJECTS: Final = (
    "properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "required",
    "minProperties", "maxProperties", "dependentRequired", "propertyNames",
)  # fmt: skip
_LISTS: Final = (
    "items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "minContains", "maxContains",
    "minItems", "maxItems", "uniqueItems",
)  # fmt: skip
_STRINGS: Final = ("minLength", "maxLength", "pattern", "format")
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_RELEVANT: Final = {
    **dict.fromkeys(_OBJECTS, frozenset(("object",))),
    **dict.fromkeys(_LISTS, frozenset(("array",))),
    **dict.fromkeys(_STRINGS, frozenset(("string",))),
    **dict.fromkeys(_NUMBERS, frozenset(("integer", "number"))),
}
"""The types that a keyword speaks about: where either schema takes none of them, it says nothing."""
_LOWER: Final = frozenset(
    ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains")
)
_UPPER: Final = frozenset(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"))
_ALL_TYPES: Final = frozenset(("object", "array", "string", "number", "integer", "boolean", "null"))
_STEPS: Final = 20_000
_DEPTH: Final = 60
_CHANGES: Final = 200


class Effect(StrEnum):
    """What a change means for the values that fit."""

    WORDS = "words"
    WIDENED = "widened"
    NARROWED = "narrowed"
    CHANGED = "changed"


class SchemaChange(msgspec.Struct, frozen=True):
    """One difference at one place, in plain words."""

    place: str
    effect: Effect
    what: str
    before: Any = None
    after: Any = None


def schema_changes(
    before: dict[str, Any], after: dict[str, Any], place: str, *, closes: bool
) -> tuple[SchemaChange, ...]:
    """Every difference; `closes` for arguments, whose silent objects take no other properties."""
    if _is_equal(bare(before), bare(after)):
        return tuple(_reworded(before, after, place))
    if any(_has_other_references(schema) for schema in (before, after)):
        what = "changed: it has references that are not followed here"
        return (SchemaChange(place, Effect.CHANGED, what, before, after),)
    comparison = _Comparison(before, after, closes=closes)
    comparison.compare(before, after, place, is_top=True)
    return tuple(comparison.found)


def joint_effect(changes: tuple[SchemaChange, ...]) -> Effect:
    """What all changes of a schema mean together."""
    effects = {change.effect for change in changes} - {Effect.WORDS}
    if not effects:
        return Effect.WORDS
    return effects.pop() if len(effects) == 1 else Effect.CHANGED


class _TooMuch(Exception):
    """The schemas are too large to be told apart in detail."""


class _Comparison:
    def __init__(self, old_root: dict[str, Any], new_root: dict[str, Any], *, closes: bool) -> None:
        self.found: list[SchemaChange] = []
        self._old_root, self._new_root, self._closes = old_root, new_root, closes
        self._seen: set[tuple[int, int, bool]] = set()
        self._steps = 0
        self._depth = 0

    def compare(self, old: Schema, new: Schema, place: str, *, is_top: bool = False) -> None:
        """Note what differs between two schemas of one place, once for each pair."""
        if not is_top:
            self._compare(old, new, place, is_top=False)
            return
        try:
            self._compare(old, new, place, is_top=True)
        except _TooMuch:
            self.found = [SchemaChange(place, Effect.CHANGED, "changed in too many places to tell", old, new)]

    def _compare(self, old: Schema, new: Schema, place: str, *, is_top: bool) -> None:
        old, new = self._followed(old, self._old_root), self._followed(new, self._new_root)
        key = (id(old), id(new), is_top and self._closes)
        if key in self._seen:
            return
        self._seen.add(key)
        self._count()
        self._depth += 1
        if isinstance(old, dict) and isinstance(new, dict):
            self._objects_or_parts(old, new, place, is_top=is_top)
        elif old is not new:
            self._booleans(old, new, place)
        self._depth -= 1

    def _booleans(self, old: Schema, new: Schema, place: str) -> None:
        if old is False:
            self._note(place, Effect.WIDENED, "widened: takes values now", old, new)
        elif new is False:
            self._note(place, Effect.NARROWED, "narrowed: takes no value any more", old, new)
        else:  # `true` takes what `{}` takes
            before, after = (_ANYTHING if schema is True else schema for schema in (old, new))
            self._compare(before, after, place, is_top=False)

    def _objects_or_parts(
        self, old: dict[str, Any], new: dict[str, Any], place: str, *, is_top: bool
    ) -> None:
        """Where objects are composed of parts, closing depends on all of them: any difference is a change."""
        if not self._is_composed_object(old, new):
            self._keywords(old, new, place, is_top=is_top)
            return
        outer, self.found = self.found, []
        self._keywords(old, new, place, is_top=is_top)
        inner, self.found = self.found, outer
        self.found += [change for change in inner if change.effect is Effect.WORDS]
        if any(change.effect is not Effect.WORDS for change in inner):
            self._note(place, Effect.CHANGED, "changed: is composed differently", old, new)

    def _is_composed_object(self, old: dict[str, Any], new: dict[str, Any]) -> bool:
        parts = (*_COMPOSERS, "$ref")
        for schema, root in ((old, self._old_root), (new, self._new_root)):
            if any(keyword in schema for keyword in parts) and self._mentions_objects(schema, root):
                return True
        return False

    def _mentions_objects(self, schema: Schema, root: dict[str, Any]) -> bool:
        """Whether a part that speaks about the same value names properties."""
        stack, seen = [schema], set[int]()
        while stack:
            here = self._followed(stack.pop(), root)
            if not isinstance(here, dict) or id(here) in seen:
                continue
            seen.add(id(here))
            self._count()
            if any(keyword in here for keyword in _OBJECTS):
                return True
            for keyword in (*_COMPOSERS, "$ref"):
                inside = here.get(keyword)
                if keyword == "$ref":
                    stack.append(_look_up(root, inside) or _ANYTHING)
                elif isinstance(inside, list):
                    stack += inside
                elif isinstance(inside, dict):
                    stack += list(inside.values()) if keyword == "dependentSchemas" else [inside]
        return False

    def _followed(self, schema: Schema, root: dict[str, Any]) -> Schema:
        """The schema that a lone reference leads to; one that leads nowhere stands for itself."""
        for _ in range(_DEPTH):
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                return schema
            if any(key not in ("$ref", *_ANNOTATIONS, *_DEFINITIONS) for key in schema):
                return schema
            target = _look_up(root, schema["$ref"])
            if target is None:
                return schema
            schema = target
        return schema

    # --- keywords ------------------------------------------------------------------------------------

    def _keywords(self, old: dict[str, Any], new: dict[str, Any], place: str, *, is_top: bool) -> None:
        self._words(old, new, place)
        spoken_of = _types(old) & _types(new)
        if {"integer", "number"} & _types(old) and {"integer", "number"} & _types(new):
            spoken_of |= {"integer", "number"}
        handled = {*_ANNOTATIONS, *_DEFINITIONS}
        if is_top and self._closes:
            handled.add("type")  # arguments are an object, said or not
        if "object" in spoken_of:
            self._properties(old, new, place, is_top=is_top)
        handled.update(("properties", "required", "additionalProperties", "unevaluatedProperties"))
        for keyword in {**old, **new}:
            relevant = _RELEVANT.get(keyword)
            if keyword in handled or (relevant is not None and not relevant & spoken_of):
                continue
            handler = _HANDLERS.get(keyword, _Comparison.other)
            handler(self, keyword, old, new, place)

    def _words(self, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        differ = [key for key in _ANNOTATIONS if not _is_equal(old.get(key), new.get(key))]
        if differ:
            what = f"{' and '.join(differ)} changed"
            self._note(
                place, Effect.WORDS, what, {k: old[k] for k in differ if k in old},
                {k: new[k] for k in differ if k in new},
            )  # fmt: skip

    def other(self, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        if keyword not in old or keyword not in new or not _is_equal(old[keyword], new[keyword]):
            what = f"changed: {echo_name(keyword)} {_from_to(old, new, keyword)}"
            self._note(place, Effect.CHANGED, what, old.get(keyword), new.get(keyword))

    def assertion(self, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        """One that is there or not, and is otherwise not compared."""
        if keyword not in old:
            self._noted(keyword, Effect.NARROWED, old, new, place)
        elif keyword not in new:
            self._noted(keyword, Effect.WIDENED, old, new, place)
        elif not _is_equal(old[keyword], new[keyword]):
            self._noted(keyword, Effect.CHANGED, old, new, place)

    def bound(self, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        before, after = _number(old.get(keyword)), _number(new.get(keyword))
        if before is None or after is None or before == after:
            if before != after or not _is_equal(old.get(keyword), new.get(keyword)):
                self.assertion(keyword, old, new, place)
            return
        rises = after > before
        effect = Effect.NARROWED if rises == (keyword in _LOWER) else Effect.WIDENED
        self._noted(keyword, effect, old, new, place)

    def multiple(self, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        before, after = _number(old.get(keyword)), _number(new.get(keyword))
        if not before or not after:
            self.assertion(keyword, old, new, place)
        elif before != after:
            effect = Effect.CHANGED
            if (before / after).denominator == 1:
                effect = Effect.WIDENED
            elif (after / before).denominator == 1:
                effect = Effect.NARROWED
            self._noted(keyword, effect, old, new, place)

    def flag(self, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        before, after = old.get(keyword, False), new.get(keyword, False)
        if before is not after:
            self._noted(keyword, Effect.NARROWED if after else Effect.WIDENED, old, new, place)

    def types(self, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        before, after = _types(old), _types(new)
        effect = _set_effect(before, after)
        if effect is not None:
            self._noted(keyword, effect, old, new, place)

    def allowed(self, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        """`enum` and `const` say the same thing."""
        if keyword == "const" and ("enum" in old or "enum" in new):
            return
        before, after = _allowed_values(old), _allowed_values(new)
        if before is None or after is None:
            effect = Effect.NARROWED if before is None else Effect.WIDENED
            what = f"{effect}: only listed values are allowed {'now' if before is None else 'no longer'}"
            self._note(place, effect, what, old, new)
            return
        effect_or_none = _set_effect(frozenset(before), frozenset(after))
        if effect_or_none is not None:
            gone = [echo(before[key]) for key in before if key not in after]
            added = [echo(after[key]) for key in after if key not in before]
            words = [f"no longer allows {', '.join(gone[:5])}"] if gone else []
            words += [f"allows {', '.join(added[:5])} too"] if added else []
            self._note(place, effect_or_none, f"{effect_or_none}: {' and '.join(words)}", old, new)

    def defaults(self, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        if keyword not in old or keyword not in new or not _is_equal(old[keyword], new[keyword]):
            what = f"changed: the default {_from_to(old, new, keyword)}"
            self._note(place, Effect.CHANGED, what, old.get(keyword), new.get(keyword))

    def alternatives(self, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        if keyword == "oneOf" and keyword in old and keyword in new and not _are_disjoint(old, new):
            return self.same_inside(keyword, old, new, place)
        return self._parts(keyword, old, new, place, added=Effect.WIDENED, removed=Effect.NARROWED)

    def all_of(self, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        self._parts(keyword, old, new, place, added=Effect.NARROWED, removed=Effect.WIDENED)

    def _parts(
        self,
        keyword: str,
        old: dict[str, Any],
        new: dict[str, Any],
        place: str,
        *,
        added: Effect,
        removed: Effect,
    ) -> None:
        if keyword not in old or keyword not in new:
            return self.assertion(keyword, old, new, place)
        gone, came = _unmatched(old[keyword], new[keyword])
        if not gone and not came:
            return self._matched_references(keyword, old, new, place)
        if gone and came:
            if len(gone) != len(came):
                return self._noted(keyword, Effect.CHANGED, old, new, place)
            for index, (before, after) in enumerate(zip(gone, came, strict=True)):
                self._compare(before, after, f"{place}/{keyword}/{index}", is_top=False)
        else:
            effect = added if came else removed
            what = f"{effect}: {len(came or gone)} {'more' if came else 'fewer'} under {keyword}"
            self._note(place, effect, what, old[keyword], new[keyword])
        return self._matched_references(keyword, old, new, place)

    def _matched_references(self, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        """Parts that read alike may refer to what changed."""
        by_text = {canonical_bytes(part): part for part in new[keyword]}
        for index, part in enumerate(old[keyword]):
            if (other := by_text.get(canonical_bytes(part))) is not None:
                self._compare(part, other, f"{place}/{keyword}/{index}", is_top=False)

    def reference(self, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        """A reference beside other keywords."""
        if keyword not in old or keyword not in new:
            return self.assertion(keyword, old, new, place)
        before, after = _look_up(self._old_root, old[keyword]), _look_up(self._new_root, new[keyword])
        if before is None or after is None:
            return self.other(keyword, old, new, place)
        return self._compare(before, after, place, is_top=False)

    def same_inside(self, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        """Schemas below a turning point: the same, references and all, or changed."""
        if keyword not in old or keyword not in new:
            return self.assertion(keyword, old, new, place)
        if not _is_equal(old[keyword], new[keyword]):
            return self._noted(keyword, Effect.CHANGED, old, new, place)
        return self._unless_same(keyword, old[keyword], new[keyword], place)

    def _unless_same(self, keyword: str, old: Any, new: Any, place: str) -> None:
        outer, self.found = self.found, []
        for before, after in zip(_inside(old), _inside(new), strict=True):
            self._compare(before, after, place, is_top=False)
        inner, self.found = self.found, outer
        if any(change.effect is not Effect.WORDS for change in inner):
            self._note(place, Effect.CHANGED, f"changed: what {keyword} refers to", old, new)

    def item(self, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        before, after = old.get(keyword, True), new.get(keyword, True)
        if isinstance(before, list) or isinstance(after, list):
            return self.same_inside(keyword, old, new, place)
        return self._compare(before, after, f"{place}/{keyword}", is_top=False)

    def prefix(self, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        before, after = old.get(keyword), new.get(keyword)
        if not isinstance(before, list) or not isinstance(after, list) or len(before) != len(after):
            return self._noted(keyword, Effect.CHANGED, old, new, place)
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            self._compare(one, other, f"{place}/{keyword}/{index}", is_top=False)
        return None

    def dependent(self, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        before = {(a, b) for a, names in (old.get(keyword) or {}).items() for b in names}
        after = {(a, b) for a, names in (new.get(keyword) or {}).items() for b in names}
        if (effect := _set_effect(frozenset(after), frozenset(before))) is not None:
            self._noted(keyword, effect, old, new, place)

    # --- objects -------------------------------------------------------------------------------------

    def _properties(self, old: dict[str, Any], new: dict[str, Any], place: str, *, is_top: bool) -> None:
        before, after = _map(old, "properties"), _map(new, "properties")
        rest = self._rest(old, is_top=is_top), self._rest(new, is_top=is_top)
        gone = [name for name in before if name not in after]
        came = [name for name in after if name not in before]
        for name in before:
            if name in after:
                self._compare(before[name], after[name], _below(place, name), is_top=False)
        if not self._is_renamed(old, new, gone, came, place):
            for name in gone:
                self._gone(name, old, new, rest[1], place)
            for name in came:
                self._came(name, old, new, rest[0], place)
        self._required(old, new, {*gone, *came}, place)
        self._others(*rest, place)

    def _rest(self, schema: dict[str, Any], *, is_top: bool) -> Schema:
        """What an object takes under names that it does not mention."""
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            if isinstance(stated := schema.get(keyword), (dict, bool)):
                return stated
        names = "properties" in schema or "patternProperties" in schema
        return not (self._closes and (names or is_top))

    def _is_renamed(
        self, old: dict[str, Any], new: dict[str, Any], gone: list[str], came: list[str], place: str
    ) -> bool:
        if len(gone) != 1 or len(came) != 1:
            return False
        before, after = old["properties"][gone[0]], new["properties"][came[0]]
        is_same = _is_equal(bare(before), bare(after))
        if not is_same or (gone[0] in _names(old)) != (came[0] in _names(new)):
            return False
        what = f"renamed to '{echo_name(came[0])}'"
        self._note(_below(place, gone[0]), Effect.CHANGED, what, before, after)
        return True

    def _gone(self, name: str, old: dict[str, Any], new: dict[str, Any], rest: Schema, place: str) -> None:
        schema, here = old["properties"][name], _below(place, name)
        is_freed = name in _names(old) - _names(new)
        if _map(new, "patternProperties") or (name in _names(old) and rest is False):
            self._note(here, Effect.CHANGED, "removed", schema)
            return
        if is_freed:
            self._note(here, Effect.WIDENED, "became optional")
        elif name in _names(new) - _names(old):
            self._note(here, Effect.NARROWED, "became required")
        if rest is False and name in _names(new):
            self._note(here, Effect.CHANGED, "removed, and still required", schema)
        elif rest is False:
            self._note(here, Effect.NARROWED, "removed", schema)
        elif rest is True:
            self._note(here, Effect.WIDENED, "no longer described: takes anything now", schema)
        else:
            self._compare(schema, rest, here, is_top=False)

    def _came(self, name: str, old: dict[str, Any], new: dict[str, Any], rest: Schema, place: str) -> None:
        schema, here = new["properties"][name], _below(place, name)
        if name in _names(new) - _names(old):
            self._note(here, Effect.CHANGED, "new and required", None, schema)
            return
        if name in _names(old) - _names(new):
            self._note(here, Effect.WIDENED, "became optional")
        if name in _names(old) and rest is False:
            self._note(here, Effect.CHANGED, "described now, as it was required before", None, schema)
        elif _map(old, "patternProperties"):
            self._note(here, Effect.CHANGED, "new, where patterns of names spoke before", None, schema)
        elif rest is False:
            self._note(here, Effect.WIDENED, "new and optional", None, schema)
        elif rest is True:
            self._note(here, Effect.NARROWED, "described now: took anything before", None, schema)
        else:
            self._compare(rest, schema, here, is_top=False)

    def _required(self, old: dict[str, Any], new: dict[str, Any], apart: set[str], place: str) -> None:
        before, after = _names(old), _names(new)
        for name in sorted(after - before - apart):
            self._note(_below(place, name), Effect.NARROWED, "became required")
        for name in sorted(before - after - apart):
            self._note(_below(place, name), Effect.WIDENED, "became optional")

    def _others(self, old: Schema, new: Schema, place: str) -> None:
        """What is taken under names that are not mentioned."""
        is_open = [schema is not False for schema in (old, new)]
        if is_open == [False, True]:
            self._note(place, Effect.WIDENED, "widened: takes properties that are not described", old, new)
        elif is_open == [True, False]:
            self._note(place, Effect.NARROWED, "narrowed: takes only properties that are described", old, new)
        elif all(is_open):
            self._compare(old, new, f"{place}/additionalProperties", is_top=False)

    def patterns(self, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        before, after = _map(old, keyword), _map(new, keyword)
        if before.keys() != after.keys():
            self._noted(keyword, Effect.CHANGED, old, new, place)
            return
        for pattern in before:
            here = place + "/" + keyword + pointer((pattern,))
            self._compare(before[pattern], after[pattern], here, is_top=False)

    # --- notes ---------------------------------------------------------------------------------------

    def _noted(
        self, keyword: str, effect: Effect, old: dict[str, Any], new: dict[str, Any], place: str
    ) -> None:
        what = f"{effect}: {keyword} {_from_to(old, new, keyword)}"
        self._note(place, effect, what, old.get(keyword), new.get(keyword))

    def _note(self, place: str, effect: Effect, what: str, before: Any = None, after: Any = None) -> None:
        self.found.append(SchemaChange(place, effect, what, before, after))
        if len(self.found) > _CHANGES:
            raise _TooMuch

    def _count(self) -> None:
        self._steps += 1
        if self._steps > _STEPS or self._depth > _DEPTH:
            raise _TooMuch


_TURNING: Final = (
    "not", "if", "then", "else", "contains", "additionalItems", "unevaluatedItems", "dependentSchemas",
    "dependencies", "contentSchema",
)  # fmt: skip
"""Keywords whose schemas are the same or not, and are not compared."""
_Handler = Callable[[_Comparison, str, dict[str, Any], dict[str, Any], str], None]
_HANDLERS: Final[dict[str, _Handler]] = {
    **dict.fromkeys((*_LOWER, *_UPPER), _Comparison.bound),
    **dict.fromkeys(("pattern", "format"), _Comparison.assertion),
    **dict.fromkeys(("enum", "const"), _Comparison.allowed),
    **dict.fromkeys(("anyOf", "oneOf"), _Comparison.alternatives),
    **dict.fromkeys(("items", "propertyNames"), _Comparison.item),
    **dict.fromkeys(_TURNING, _Comparison.same_inside),
    "type": _Comparison.types,
    "multipleOf": _Comparison.multiple,
    "uniqueItems": _Comparison.flag,
    "default": _Comparison.defaults,
    "allOf": _Comparison.all_of,
    "prefixItems": _Comparison.prefix,
    "dependentRequired": _Comparison.dependent,
    "patternProperties": _Comparison.patterns,
    "$ref": _Comparison.reference,
}


_ANYTHING: Final[dict[str, Any]] = {}
_OTHER_REFERENCES: Final = ("$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$recursiveAnchor")


def _has_other_references(root: dict[str, Any]) -> bool:
    """Whether references may lead elsewhere than a pointer from the root says."""
    for schema in _inside(root):
        if any(keyword in schema for keyword in _OTHER_REFERENCES) or (
            "$id" in schema and schema is not root
        ):
            return True
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference != "#" and not reference.startswith("#/"):
            return True
    return False


def _reworded(before: dict[str, Any], after: dict[str, Any], place: str) -> Iterator[SchemaChange]:
    """The places whose words changed, of two schemas that are equal otherwise."""
    if _is_equal(before, after):
        return
    differ = [key for key in _ANNOTATIONS if not _is_equal(before.get(key), after.get(key))]
    if differ:
        olds, news = ({k: s[k] for k in differ if k in s} for s in (before, after))
        yield SchemaChange(place, Effect.WORDS, f"{' and '.join(differ)} changed", olds, news)
    for keys, child in children(before):
        other: Any = after
        for key in keys:
            other = other[int(key)] if isinstance(other, list) else other[key]
        if isinstance(child, dict):
            yield from _reworded(child, other, place + pointer(keys))


def bare(schema: Any) -> Any:
    """A schema without the words that only explain; a property may be called like one of them."""
    if isinstance(schema, list):
        return [bare(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    shown: dict[str, Any] = {}
    for key, value in schema.items():
        if key in (*MAPS, "dependentRequired", "dependencies") and isinstance(value, dict):
            shown[key] = {name: bare(inside) for name, inside in value.items()}
        elif key in ("enum", "const", "default"):
            shown[key] = value
        elif key not in _ANNOTATIONS:
            shown[key] = bare(value)
    return shown


def _is_equal(before: Any, after: Any) -> bool:
    """Compared as JSON, because to Python 1, 1.0 and True are one."""
    return canonical_bytes(before) == canonical_bytes(after)


def _inside(value: Any) -> Iterator[Any]:
    """Every object inside a value, itself first: those of two equal values come in the same order."""
    if isinstance(value, dict):
        yield value
        for key in sorted(value):
            yield from _inside(value[key])
    elif isinstance(value, list):
        for item in value:
            yield from _inside(item)


def _types(schema: dict[str, Any]) -> frozenset[str]:
    declared = types_of(schema)
    if declared is None:
        return _ALL_TYPES
    return declared | {"integer"} if "number" in declared else declared


def _set_effect(before: frozenset[Any], after: frozenset[Any]) -> Effect | None:
    if before == after:
        return None
    if before < after:
        return Effect.WIDENED
    return Effect.NARROWED if after < before else Effect.CHANGED


def _allowed_values(schema: dict[str, Any]) -> dict[bytes, Any] | None:
    listed = schema.get("enum") if "enum" in schema else None
    values = listed if isinstance(listed, list) else None
    if "const" in schema:
        const = schema["const"]
        values = [const] if values is None else [value for value in values if _is_equal(value, const)]
    return None if values is None else {canonical_bytes(value): value for value in values}


def _unmatched(old: list[Any], new: list[Any]) -> tuple[list[Any], list[Any]]:
    """What of two lists has no equal in the other."""
    rest = [(canonical_bytes(part), part) for part in new]
    gone = []
    for part in old:
        text = canonical_bytes(part)
        index = next((i for i, (other, _) in enumerate(rest) if other == text), None)
        if index is None:
            gone.append(part)
        else:
            rest.pop(index)
    return gone, [part for _, part in rest]


def _are_disjoint(*schemas: dict[str, Any]) -> bool:
    """Whether no value can fit two alternatives, by their types alone."""
    for schema in schemas:
        met: set[str] = set()
        for part in schema["oneOf"]:
            declared = types_of(part) if isinstance(part, dict) else None
            if declared is None or _types(part) & met:
                return False
            met |= _types(part)
    return True


def _number(value: Any) -> Fraction | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return Fraction(str(value)) if isinstance(value, float) else Fraction(value)


def _names(schema: dict[str, Any]) -> set[str]:
    return {name for name in schema.get("required") or () if isinstance(name, str)}


def _map(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _below(place: str, name: str) -> str:
    return f"{place}/properties{pointer((name,))}"


def _from_to(old: dict[str, Any], new: dict[str, Any], keyword: str) -> str:
    if keyword not in old:
        return f"is new, {echo(new[keyword])}"
    if keyword not in new:
        return f"{echo(old[keyword])} is gone"
    return f"from {echo(old[keyword])} to {echo(new[keyword])}"


def _look_up(root: dict[str, Any], reference: Any) -> Schema | None:
    """What a local reference leads to; None where that is no schema."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    if reference != "#" and not reference.startswith("#/"):
        return None
    here: Any = root
    for token in reference[1:].split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict):
            here = here.get(key)
        elif isinstance(here, list) and key.isdecimal() and len(key) < 6 and int(key) < len(here):
            here = here[int(key)]
        else:
            return None
    return here if isinstance(here, (dict, bool)) else None
