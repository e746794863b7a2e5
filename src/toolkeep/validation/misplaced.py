"""Finds where a property belongs that a call gives at the wrong level."""

from collections.abc import Iterator, Sequence
from typing import Any

from toolkeep.validation.faults import Place, value_at
from toolkeep.validation.secret_values import Locator

_MOST_NAMES = 100
"""Names of one object up to which the objects below are searched: it is done for each unknown name."""


def inner_names(value: Any, free: Sequence[str]) -> list[str]:
    """The names inside an unknown object that all belong beside it: `{"arguments": {"path": …}}`."""
    return list(value) if isinstance(value, dict) and value and value.keys() <= set(free) else []


def home_of(locator: Locator, value: Any, at: Place) -> Place | None:
    """The place of an unknown property one or more levels off, None when unsure."""
    homes = {home for home in _homes(locator, value, at) if _is_free(value, home)}
    return homes.pop() if len(homes) == 1 else None


def _homes(locator: Locator, value: Any, at: Place) -> Iterator[Place]:
    above, name = at[:-1], str(at[-1])
    known = locator.names_at(above, value_at(value, above))
    head, _, tail = name.partition(".")
    for holder in known if len(known) <= _MOST_NAMES else ():
        wanted = tail if holder == head else name
        if wanted in locator.names_at((*above, holder)):
            yield (*above, holder, wanted)
    for depth in range(len(above) - 1, -1, -1):
        if isinstance(above[depth], str) and name in locator.names_at(above[:depth]):
            yield (*above[:depth], name)
            return


def _is_free(value: Any, home: Place) -> bool:
    """Whether a place is in an object, be it one that is missing too, and nothing is there."""
    for step in home[:-1]:
        if isinstance(value, dict) and step not in value:
            return True
        if not isinstance(value, (dict, list)):
            return False
        value = value_at(value, (step,))
    return isinstance(value, dict) and home[-1] not in value
