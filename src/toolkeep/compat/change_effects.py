"""The effect of a schema change on the accepted values, and the change in plain words."""

from enum import StrEnum
from typing import Any, Protocol

import msgspec

from toolkeep.validation.schema_keywords import Schema


class Effect(StrEnum):
    """The effect of a change on the accepted values."""

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


class Comparison(Protocol):
    """The comparison as the keyword handlers see it; implemented by `Walk` in `schema_walk`."""

    old_root: dict[str, Any]
    new_root: dict[str, Any]
    closes: bool
    """Whether objects accept only the properties that are described."""

    def compare(self, old: Schema, new: Schema, place: str, *, is_top: bool = False) -> None:
        """Compare two subschemas of one place."""

    def refers_alike(self, value: Any) -> bool:
        """Whether everything that an unchanged value references is unchanged too."""

    def note(self, place: str, effect: Effect, what: str, before: Any = None, after: Any = None) -> None:
        """Record a difference."""

    def noted(
        self, keyword: str, effect: Effect, old: dict[str, Any], new: dict[str, Any], place: str
    ) -> None:
        """Record a keyword whose value differs."""


def set_effect(before: frozenset[Any], after: frozenset[Any]) -> Effect | None:
    """The effect of allowing other members; None if they are the same."""
    if before == after:
        return None
    if before < after:
        return Effect.WIDENED
    return Effect.NARROWED if after < before else Effect.CHANGED
