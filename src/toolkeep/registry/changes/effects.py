"""What a change means for the values that fit, and a change in plain words."""

from enum import StrEnum
from typing import Any

import msgspec


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


def set_effect(before: frozenset[Any], after: frozenset[Any]) -> Effect | None:
    """What it means that other members are allowed; None where they are the same."""
    if before == after:
        return None
    if before < after:
        return Effect.WIDENED
    return Effect.NARROWED if after < before else Effect.CHANGED
