"""What changed between two definitions of one tool, in plain words, and how its version is bumped (REG-3).

Conservative: a change that is not known to be harmless to callers is major. A change that is taken for
harmless by mistake would reach a pinned tool without a review.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, Final

import msgspec

from toolkeep.compat.annotation_changes import reworded
from toolkeep.compat.change_effects import Effect, SchemaChange
from toolkeep.compat.schema_reader import bare, has_other_references, is_equal
from toolkeep.compat.schema_walk import Walk
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.version_order import precedence
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.validation.dialect import with_listed_properties

_TEXTS: Final = frozenset({"description", "usage_metadata"})
_WHOM: Final = {
    "request": "asks for something else, or asks otherwise",
    "server": "is a tool of another server",
}
"""Metadata of imports that says who is called and for what: a change there is another tool under an old
name."""


class Weight(IntEnum):
    """What a change means to callers of the tool."""

    PATCH = 0
    MINOR = 1
    MAJOR = 2


_TAKEN: Final = {
    Effect.WORDS: Weight.PATCH,
    Effect.WIDENED: Weight.MINOR,
    Effect.NARROWED: Weight.MAJOR,
    Effect.CHANGED: Weight.MAJOR,
}
"""For input: a caller that sends less than the tool accepts is not affected."""
_GIVEN: Final = {**_TAKEN, Effect.WIDENED: Weight.MAJOR, Effect.NARROWED: Weight.MINOR}
"""For output: a caller that can read more than the tool returns is not affected."""


class Change(msgspec.Struct, frozen=True):
    """One difference in plain words, with the old and the new value."""

    field: str
    what: str
    weight: Weight
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        return f"{self.field}: {self.what} ({self.weight.name.lower()})"


def changes_between(old: ToolDefinition, new: ToolDefinition) -> tuple[Change, ...]:
    """Every difference except the version."""
    return data_changes(old.to_dict(), new.to_dict())


def data_changes(before: dict[str, Any], after: dict[str, Any]) -> tuple[Change, ...]:
    """Every difference except the version, between two definitions as data."""
    found: list[Change] = []
    for field in {**before, **after}:
        if field != "version" and canonical_bytes(before.get(field)) != canonical_bytes(after.get(field)):
            found += field_changes(field, before.get(field), after.get(field))
    return tuple(found)


def verdict(changes: Sequence[Change]) -> Weight:
    """The weight of all changes together."""
    return max((change.weight for change in changes), default=Weight.PATCH)


def moved_version(pinned: str, old: ToolDefinition, new: ToolDefinition) -> str:
    """The version after an accepted change: upstream's own if it went up, else bumped by the verdict."""
    if precedence(new.version) > max(precedence(old.version), precedence(pinned)):
        return new.version
    major, minor, patch = precedence(pinned)[:3]
    weight = verdict(changes_between(old, new))
    if weight is Weight.MAJOR:
        return f"{major + 1}.0.0"
    return f"{major}.{minor + 1}.0" if weight is Weight.MINOR else f"{major}.{minor}.{patch + 1}"


def is_renamed(old: ToolDefinition, new: ToolDefinition) -> bool:
    """Whether two definitions of one upstream are equal except for names and descriptions."""
    return all(
        _says_the_same(field, old.to_dict(), new.to_dict()) for field in ("parameters", "output_schema")
    )


def _says_the_same(field: str, before: dict[str, Any], after: dict[str, Any]) -> bool:
    return canonical_bytes(bare(before.get(field))) == canonical_bytes(bare(after.get(field)))


def field_changes(field: str, before: Any, after: Any) -> Iterator[Change]:
    """What changed in one field of the data, for which both values differ."""
    if field in ("parameters", "output_schema") and before is not None and after is not None:
        weights = _TAKEN if field == "parameters" else _GIVEN
        for change in schema_changes(before, after, field, closes=field == "parameters"):
            weight = weights[change.effect]
            yield Change(change.place, change.what, weight, change.before, change.after)
        return
    if field == "aliases":
        gone = [alias for alias in before or () if alias not in (after or ())]
        what, weight = ("fewer", Weight.MAJOR) if gone else ("more", Weight.MINOR)
        yield Change(field, f"{what} names to call it by", weight, before, after)
        return
    if field == "metadata":
        yield from _metadata(before or {}, after or {})
        return
    if field == "source":
        yield Change(field, "is another tool of its upstream", Weight.MAJOR, before, after)
        return
    what = "new" if before is None else "removed" if after is None else "changed"
    yield Change(field, what, Weight.PATCH if field in _TEXTS else Weight.MAJOR, before, after)


def _metadata(before: dict[str, Any], after: dict[str, Any]) -> Iterator[Change]:
    for key, what in _WHOM.items():
        old, new = before.get(key), after.get(key)
        if canonical_bytes(_of_both(old, new)) != canonical_bytes(_of_both(new, old)):
            yield Change(f"metadata/{key}", what, Weight.MAJOR, old, new)
    old_rest, new_rest = ({k: v for k, v in one.items() if k not in _WHOM} for one in (before, after))
    if canonical_bytes(old_rest) != canonical_bytes(new_rest):
        what = "new" if not old_rest else "removed" if not new_rest else "changed"
        yield Change("metadata", what, Weight.PATCH, old_rest, new_rest)


def _of_both(request: Any, other: Any) -> Any:
    """A request without the arguments that only it sends: those are reported with the parameters."""
    sent = [one.get("sent") if isinstance(one, dict) else None for one in (request, other)]
    mine, theirs = (one if isinstance(one, dict) else {} for one in sent)
    if not isinstance(request, dict):
        return request
    return {**request, "sent": {name: where for name, where in mine.items() if name in theirs}}


def schema_changes(
    before: dict[str, Any], after: dict[str, Any], place: str, *, closes: bool
) -> tuple[SchemaChange, ...]:
    """Every difference; `closes` for arguments, whose silent objects accept no other properties."""
    if is_equal(bare(before), bare(after)):
        return tuple(reworded(before, after, place))
    if closes:  # a required property is accepted, be it listed or not
        before, after = with_listed_properties(before), with_listed_properties(after)
    if any(has_other_references(schema) for schema in (before, after)):
        what = "changed: it has references that are not followed here"
        return (SchemaChange(place, Effect.CHANGED, what, before, after),)
    walk = Walk(before, after, closes=closes)
    walk.compare_roots(place)
    return tuple(walk.found)
