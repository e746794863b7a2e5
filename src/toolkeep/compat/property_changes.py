"""The effect of a change of an object's properties: which it has, requires, and accepts under other names."""

from typing import Any

from toolkeep.compat.change_effects import Comparison, Effect
from toolkeep.compat.schema_reader import bare, is_equal, map_of, required_names
from toolkeep.json_values.pointers import pointer
from toolkeep.text.display import echo_name
from toolkeep.validation.schema_keywords import Schema


def compare_properties(
    walk: Comparison, old: dict[str, Any], new: dict[str, Any], place: str, *, is_top: bool
) -> None:
    """Properties that were removed, added or kept, which are required, and what other names may hold."""
    before, after = map_of(old, "properties"), map_of(new, "properties")
    rest = _rest(walk, old, is_top=is_top), _rest(walk, new, is_top=is_top)
    gone = [name for name in before if name not in after]
    came = [name for name in after if name not in before]
    for name in before:
        if name in after:
            walk.compare(before[name], after[name], _below(place, name))
    if not _is_renamed(walk, old, new, gone, came, place):
        for name in gone:
            _gone(walk, name, old, new, rest[1], place)
        for name in came:
            _came(walk, name, old, new, rest[0], place)
    _required(walk, old, new, {*gone, *came}, place)
    _others(walk, *rest, place)


def _rest(walk: Comparison, schema: dict[str, Any], *, is_top: bool) -> Schema:
    """The schema of properties that are not listed."""
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if isinstance(stated := schema.get(keyword), (dict, bool)):
            return stated
    names = "properties" in schema or "patternProperties" in schema
    return not (walk.closes and (names or is_top))


def _is_renamed(
    walk: Comparison, old: dict[str, Any], new: dict[str, Any], gone: list[str], came: list[str], place: str
) -> bool:
    if len(gone) != 1 or len(came) != 1:
        return False
    before, after = old["properties"][gone[0]], new["properties"][came[0]]
    is_same = is_equal(bare(before), bare(after))
    if not is_same or (gone[0] in required_names(old)) != (came[0] in required_names(new)):
        return False
    what = f"renamed to '{echo_name(came[0])}'"
    walk.note(_below(place, gone[0]), Effect.CHANGED, what, before, after)
    return True


def _gone(
    walk: Comparison, name: str, old: dict[str, Any], new: dict[str, Any], rest: Schema, place: str
) -> None:
    schema, here = old["properties"][name], _below(place, name)
    is_freed = name in required_names(old) - required_names(new)
    if map_of(new, "patternProperties") or (name in required_names(old) and rest is False):
        walk.note(here, Effect.CHANGED, "removed", schema)
        return
    if is_freed:
        walk.note(here, Effect.WIDENED, "became optional")
    elif name in required_names(new) - required_names(old):
        walk.note(here, Effect.NARROWED, "became required")
    if rest is False and name in required_names(new):
        walk.note(here, Effect.CHANGED, "removed, and still required", schema)
    elif rest is False:
        walk.note(here, Effect.NARROWED, "removed", schema)
    elif rest is True:
        walk.note(here, Effect.WIDENED, "no longer described: takes anything now", schema)
    else:
        walk.compare(schema, rest, here)


def _came(
    walk: Comparison, name: str, old: dict[str, Any], new: dict[str, Any], rest: Schema, place: str
) -> None:
    schema, here = new["properties"][name], _below(place, name)
    if name in required_names(new) - required_names(old):
        walk.note(here, Effect.CHANGED, "new and required", None, schema)
        return
    if name in required_names(old) - required_names(new):
        walk.note(here, Effect.WIDENED, "became optional")
    if name in required_names(old) and rest is False:
        walk.note(here, Effect.CHANGED, "described now, as it was required before", None, schema)
    elif map_of(old, "patternProperties"):
        walk.note(here, Effect.CHANGED, "new, where patterns of names spoke before", None, schema)
    elif rest is False:
        walk.note(here, Effect.WIDENED, "new and optional", None, schema)
    elif rest is True:
        walk.note(here, Effect.NARROWED, "described now: took anything before", None, schema)
    else:
        walk.compare(rest, schema, here)


def _required(
    walk: Comparison, old: dict[str, Any], new: dict[str, Any], apart: set[str], place: str
) -> None:
    before, after = required_names(old), required_names(new)
    for name in sorted(after - before - apart):
        walk.note(_below(place, name), Effect.NARROWED, "became required")
    for name in sorted(before - after - apart):
        walk.note(_below(place, name), Effect.WIDENED, "became optional")


def _others(walk: Comparison, old: Schema, new: Schema, place: str) -> None:
    """Compare what is accepted under names that are not listed."""
    is_open = [schema is not False for schema in (old, new)]
    if is_open == [False, True]:
        walk.note(place, Effect.WIDENED, "widened: takes properties that are not described", old, new)
    elif is_open == [True, False]:
        walk.note(place, Effect.NARROWED, "narrowed: takes only properties that are described", old, new)
    elif all(is_open):
        walk.compare(old, new, f"{place}/additionalProperties")


def _below(place: str, name: str) -> str:
    return f"{place}/properties{pointer((name,))}"
