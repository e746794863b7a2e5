"""The effect of a change of each keyword, except those that list properties of an object.

One function for each kind of keyword. In: both schemas and the place. Out: differences, recorded in the walk.
"""

from collections.abc import Callable
from typing import Any, Final

from toolkeep.compat.annotation_changes import from_to
from toolkeep.compat.change_effects import Comparison, Effect, set_effect
from toolkeep.compat.schema_reader import (
    allowed_values,
    are_disjoint,
    is_equal,
    look_up,
    map_of,
    number_of,
    types_taken,
    unmatched,
)
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.json_values.pointers import pointer
from toolkeep.text.display import echo, echo_name

_LOWER: Final = frozenset(
    ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains")
)
_SILENCE: Final = {"minContains": 1}
"""The value of a bound that is missing, if it has one."""
_UPPER: Final = frozenset(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"))


def other(walk: Comparison, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
    """An unknown keyword: equal, or changed."""
    if keyword not in old or keyword not in new or not is_equal(old[keyword], new[keyword]):
        what = f"changed: {echo_name(keyword)} {from_to(old, new, keyword)}"
        walk.note(place, Effect.CHANGED, what, old.get(keyword), new.get(keyword))


def assertion(walk: Comparison, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
    """A keyword that is present or not, and otherwise not compared."""
    if keyword not in old:
        walk.noted(keyword, Effect.NARROWED, old, new, place)
    elif keyword not in new:
        walk.noted(keyword, Effect.WIDENED, old, new, place)
    elif not is_equal(old[keyword], new[keyword]):
        walk.noted(keyword, Effect.CHANGED, old, new, place)


def bound(walk: Comparison, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
    """A lower or upper bound."""
    silence = _SILENCE.get(keyword)
    before, after = number_of(old.get(keyword, silence)), number_of(new.get(keyword, silence))
    if before is None or after is None or before == after:
        if before != after or not is_equal(old.get(keyword, silence), new.get(keyword, silence)):
            assertion(walk, keyword, old, new, place)
        return
    rises = after > before
    effect = Effect.NARROWED if rises == (keyword in _LOWER) else Effect.WIDENED
    walk.noted(keyword, effect, old, new, place)


def multiple(walk: Comparison, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
    """`multipleOf`: a divisor of the old one accepts more."""
    before, after = number_of(old.get(keyword)), number_of(new.get(keyword))
    if not before or not after:
        assertion(walk, keyword, old, new, place)
    elif before != after:
        effect = Effect.CHANGED
        if (before / after).denominator == 1:
            effect = Effect.WIDENED
        elif (after / before).denominator == 1:
            effect = Effect.NARROWED
        walk.noted(keyword, effect, old, new, place)


def flag(walk: Comparison, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
    """`uniqueItems`."""
    before, after = old.get(keyword, False), new.get(keyword, False)
    if before is not after:
        walk.noted(keyword, Effect.NARROWED if after else Effect.WIDENED, old, new, place)


def types(walk: Comparison, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
    """Which types are accepted."""
    before, after = types_taken(old), types_taken(new)
    effect = set_effect(before, after)
    if effect is not None:
        walk.noted(keyword, effect, old, new, place)


def allowed(walk: Comparison, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
    """`enum` and `const` mean the same."""
    if keyword == "const" and ("enum" in old or "enum" in new):
        return
    before, after = allowed_values(old), allowed_values(new)
    if before is None or after is None:
        effect = Effect.NARROWED if before is None else Effect.WIDENED
        what = f"{effect}: only listed values are allowed {'now' if before is None else 'no longer'}"
        walk.note(place, effect, what, old, new)
        return
    effect_or_none = set_effect(frozenset(before), frozenset(after))
    if effect_or_none is not None:
        gone = [echo(before[key]) for key in before if key not in after]
        added = [echo(after[key]) for key in after if key not in before]
        words = [f"no longer allows {', '.join(gone[:5])}"] if gone else []
        words += [f"allows {', '.join(added[:5])} too"] if added else []
        walk.note(place, effect_or_none, f"{effect_or_none}: {' and '.join(words)}", old, new)


def defaults(walk: Comparison, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
    """Another default changes the call of everybody who leaves the argument out."""
    if keyword not in old or keyword not in new or not is_equal(old[keyword], new[keyword]):
        what = f"changed: the default {from_to(old, new, keyword)}"
        walk.note(place, Effect.CHANGED, what, old.get(keyword), new.get(keyword))


def alternatives(
    walk: Comparison, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str
) -> None:
    """More alternatives accept more; for `oneOf` only if no value matches two."""
    if keyword == "oneOf" and keyword in old and keyword in new and not are_disjoint(old, new):
        return same_inside(walk, keyword, old, new, place)
    return _parts(walk, keyword, old, new, place, added=Effect.WIDENED, removed=Effect.NARROWED)


def all_of(walk: Comparison, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
    """More subschemas accept less."""
    _parts(walk, keyword, old, new, place, added=Effect.NARROWED, removed=Effect.WIDENED)


def _parts(
    walk: Comparison,
    keyword: str,
    old: dict[str, Any],
    new: dict[str, Any],
    place: str,
    *,
    added: Effect,
    removed: Effect,
) -> None:
    if keyword not in old or keyword not in new:
        return assertion(walk, keyword, old, new, place)
    gone, came = unmatched(old[keyword], new[keyword])
    if not gone and not came:
        return _matched_references(walk, keyword, old, new, place)
    if gone and came:
        if len(gone) != len(came):
            return walk.noted(keyword, Effect.CHANGED, old, new, place)
        for index, (before, after) in enumerate(zip(gone, came, strict=True)):
            walk.compare(before, after, f"{place}/{keyword}/{index}")
    else:
        effect = added if came else removed
        what = f"{effect}: {len(came or gone)} {'more' if came else 'fewer'} under {keyword}"
        walk.note(place, effect, what, old[keyword], new[keyword])
    return _matched_references(walk, keyword, old, new, place)


def _matched_references(
    walk: Comparison, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str
) -> None:
    """Equal subschemas may reference something that changed."""
    by_text = {canonical_bytes(part): part for part in new[keyword]}
    for index, part in enumerate(old[keyword]):
        if (other := by_text.get(canonical_bytes(part))) is not None:
            walk.compare(part, other, f"{place}/{keyword}/{index}")


def reference(walk: Comparison, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
    """A reference beside other keywords."""
    if keyword not in old or keyword not in new:
        return assertion(walk, keyword, old, new, place)
    before, after = look_up(walk.old_root, old[keyword]), look_up(walk.new_root, new[keyword])
    if before is None or after is None:
        return other(walk, keyword, old, new, place)
    return walk.compare(before, after, place)


def same_inside(walk: Comparison, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
    """Subschemas below a negation: equal, including references, or changed."""
    if keyword not in old or keyword not in new:
        return assertion(walk, keyword, old, new, place)
    if not is_equal(old[keyword], new[keyword]):
        return walk.noted(keyword, Effect.CHANGED, old, new, place)
    if not walk.refers_alike(old[keyword]):
        walk.note(place, Effect.CHANGED, f"changed: what {keyword} refers to", old[keyword], new[keyword])
    return None


def item(walk: Comparison, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
    """One schema for many values."""
    before, after = old.get(keyword, True), new.get(keyword, True)
    if isinstance(before, list) or isinstance(after, list):
        return same_inside(walk, keyword, old, new, place)
    return walk.compare(before, after, f"{place}/{keyword}")


def prefix(walk: Comparison, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
    """A schema for each of the first items."""
    before, after = old.get(keyword), new.get(keyword)
    if not isinstance(before, list) or not isinstance(after, list) or len(before) != len(after):
        return walk.noted(keyword, Effect.CHANGED, old, new, place)
    for index, (one, other) in enumerate(zip(before, after, strict=True)):
        walk.compare(one, other, f"{place}/{keyword}/{index}")
    return None


def dependent(walk: Comparison, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
    """Dependencies between properties: more of them accept less."""
    before = {(a, b) for a, names in (old.get(keyword) or {}).items() for b in names}
    after = {(a, b) for a, names in (new.get(keyword) or {}).items() for b in names}
    if (effect := set_effect(frozenset(after), frozenset(before))) is not None:
        walk.noted(keyword, effect, old, new, place)


def patterns(walk: Comparison, keyword: str, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
    """Schemas for names that match."""
    before, after = map_of(old, keyword), map_of(new, keyword)
    if before.keys() != after.keys():
        walk.noted(keyword, Effect.CHANGED, old, new, place)
        return
    for pattern in before:
        here = place + "/" + keyword + pointer((pattern,))
        walk.compare(before[pattern], after[pattern], here)


_TURNING: Final = (
    "not", "if", "then", "else", "contains", "additionalItems", "unevaluatedItems", "dependentSchemas",
    "dependencies", "contentSchema",
)  # fmt: skip
"""Keywords whose schemas are the same or not, and are not compared."""
_Handler = Callable[[Comparison, str, dict[str, Any], dict[str, Any], str], None]
HANDLERS: Final[dict[str, _Handler]] = {
    **dict.fromkeys((*_LOWER, *_UPPER), bound),
    **dict.fromkeys(("pattern", "format"), assertion),
    **dict.fromkeys(("enum", "const"), allowed),
    **dict.fromkeys(("anyOf", "oneOf"), alternatives),
    **dict.fromkeys(("items", "propertyNames"), item),
    **dict.fromkeys(_TURNING, same_inside),
    "type": types,
    "multipleOf": multiple,
    "uniqueItems": flag,
    "default": defaults,
    "allOf": all_of,
    "prefixItems": prefix,
    "dependentRequired": dependent,
    "patternProperties": patterns,
    "$ref": reference,
}
