"""Changes of annotations only, and how a change of a value is worded."""

from collections.abc import Iterator
from typing import Any

from toolkeep.compat.change_effects import Effect, SchemaChange
from toolkeep.compat.schema_reader import ANNOTATIONS, is_equal
from toolkeep.json_values.pointers import pointer
from toolkeep.text.display import echo
from toolkeep.validation.schema_keywords import children


def reworded(before: dict[str, Any], after: dict[str, Any], place: str) -> Iterator[SchemaChange]:
    """The places whose annotations changed, of two schemas that are equal otherwise."""
    if is_equal(before, after):
        return
    yield from words_between(before, after, place)
    for keys, child in children(before):
        other: Any = after
        for key in keys:
            other = other[int(key)] if isinstance(other, list) else other[key]
        if isinstance(child, dict):
            yield from reworded(child, other, place + pointer(keys))


def words_between(old: dict[str, Any], new: dict[str, Any], place: str) -> Iterator[SchemaChange]:
    """The differences in the annotations of two schemas themselves."""
    differ = [key for key in ANNOTATIONS if not is_equal(old.get(key), new.get(key))]
    if differ:
        olds, news = ({key: one[key] for key in differ if key in one} for one in (old, new))
        yield SchemaChange(place, Effect.WORDS, f"{' and '.join(differ)} changed", olds, news)


def from_to(old: dict[str, Any], new: dict[str, Any], keyword: str) -> str:
    """How the value of a keyword changed."""
    if keyword not in old:
        return f"is new, {echo(new[keyword])}"
    if keyword not in new:
        return f"{echo(old[keyword])} is gone"
    return f"from {echo(old[keyword])} to {echo(new[keyword])}"
