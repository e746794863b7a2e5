"""What changed between two definitions of one tool, in plain words, and how far its version moves (REG-3).

Careful rather than clever: what is not known to be harmless to callers is a major change.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, Final

import msgspec

from toolkeep.canonical import canonical_bytes
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.registry.changes.effects import Effect
from toolkeep.registry.changes.reading import bare
from toolkeep.registry.schema_changes import schema_changes
from toolkeep.registry.versions import precedence

_TEXTS: Final = frozenset({"description", "usage_metadata"})
_WHOM: Final = {
    "request": "asks for something else, or asks otherwise",
    "server": "is a tool of another server",
}
"""Of the metadata of imports, who is asked and for what: another one is another tool under an old name."""


class Weight(IntEnum):
    """What a change means to those who call the tool."""

    PATCH = 0
    MINOR = 1
    MAJOR = 2


_TAKEN: Final = {
    Effect.WORDS: Weight.PATCH,
    Effect.WIDENED: Weight.MINOR,
    Effect.NARROWED: Weight.MAJOR,
    Effect.CHANGED: Weight.MAJOR,
}
"""Of what a tool takes: who sends less than it takes is not harmed."""
_GIVEN: Final = {**_TAKEN, Effect.WIDENED: Weight.MAJOR, Effect.NARROWED: Weight.MINOR}
"""Of what it gives: who can read more than it gives is not harmed."""


class Change(msgspec.Struct, frozen=True):
    """One difference, in plain words, with what was there and what is there now."""

    field: str
    what: str
    weight: Weight
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        return f"{self.field}: {self.what} ({self.weight.name.lower()})"


def changes_between(old: ToolDefinition, new: ToolDefinition) -> tuple[Change, ...]:
    """Every difference, the version aside."""
    before, after = old.to_dict(), new.to_dict()
    found: list[Change] = []
    for field in {**before, **after}:
        if field != "version" and canonical_bytes(before.get(field)) != canonical_bytes(after.get(field)):
            found += _changes(field, before.get(field), after.get(field))
    return tuple(found)


def verdict(changes: Sequence[Change]) -> Weight:
    """The weight of all changes together."""
    return max((change.weight for change in changes), default=Weight.PATCH)


def moved_version(pinned: str, old: ToolDefinition, new: ToolDefinition) -> str:
    """The version after an accepted change: upstream's own if it moved up, else ours by the verdict."""
    if precedence(new.version) > max(precedence(old.version), precedence(pinned)):
        return new.version
    major, minor, patch = precedence(pinned)[:3]
    weight = verdict(changes_between(old, new))
    if weight is Weight.MAJOR:
        return f"{major + 1}.0.0"
    return f"{major}.{minor + 1}.0" if weight is Weight.MINOR else f"{major}.{minor}.{patch + 1}"


def is_renamed(old: ToolDefinition, new: ToolDefinition) -> bool:
    """Whether two definitions of one upstream are the same but for names and words."""
    return all(
        _says_the_same(field, old.to_dict(), new.to_dict()) for field in ("parameters", "output_schema")
    )


def _says_the_same(field: str, before: dict[str, Any], after: dict[str, Any]) -> bool:
    return canonical_bytes(bare(before.get(field))) == canonical_bytes(bare(after.get(field)))


def _changes(field: str, before: Any, after: Any) -> Iterator[Change]:
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
    """A request without the arguments that only it sends: those are told with the parameters."""
    sent = [one.get("sent") if isinstance(one, dict) else None for one in (request, other)]
    mine, theirs = (one if isinstance(one, dict) else {} for one in sent)
    if not isinstance(request, dict):
        return request
    return {**request, "sent": {name: where for name, where in mine.items() if name in theirs}}
