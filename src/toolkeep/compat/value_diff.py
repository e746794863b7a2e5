"""Differences between two values as lines of text, complete and safe to print."""

import json
import re
from collections.abc import Iterator
from difflib import unified_diff
from itertools import islice
from typing import Any

from toolkeep.text.display import visible


def value_difference(before: Any, after: Any) -> Iterator[str]:
    """The lines that differ between two values of a field."""
    yield from changed_lines(text_lines(before), text_lines(after))


def changed_lines(
    old: list[str], new: list[str], *, around: int = 1, has_places: bool = False
) -> Iterator[str]:
    """The lines that differ, with some around them."""
    # The two lines of the heading by their place: a changed line that begins with -- looks like one of them.
    for line in islice(unified_diff(old, new, lineterm="", n=around), 2, None):
        if has_places or not line.startswith("@@"):
            yield visible(line)


def text_lines(value: Any) -> list[str]:
    """Split text into sentences and data into members, so that a change stands out."""
    if value is None:
        return []
    if isinstance(value, str):
        return [part for line in value.split("\n") for part in re.split(r"(?<=[.!?]) ", line)]
    return json.dumps(value, indent=1, ensure_ascii=False).split("\n")
