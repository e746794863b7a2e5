"""Fits one line of untrusted text into the columns of a terminal.

Every character of the result is visible, stays on its line and covers no other line.
"""

import json
import unicodedata
from typing import Final

from toolkeep.text.display import visible

_MARKS: Final = 3
"""Combining marks on one letter; Hebrew and Vietnamese need up to three. More ("Zalgo" text) would cover
other rows."""


def sanitize_line(text: str) -> str:
    """Escape a line so that every character is visible, stays on its line and covers no other."""
    shown = visible(text)
    if shown.isascii():
        return shown
    marks = _MARKS  # no base letter yet: a leading mark would combine with what stands before the text
    parts = []
    for char in shown:
        is_mark = unicodedata.category(char)[0] == "M"
        marks = marks + 1 if is_mark else (0 if char.isalpha() else _MARKS)
        parts.append(json.dumps(char)[1:-1] if is_mark and marks > _MARKS else char)
    return "".join(parts)


def count_columns(text: str) -> int:
    """Upper bound of the columns that text takes: terminals disagree about wide characters."""
    return len(text) if text.isascii() else sum(1 if char.isascii() else 2 for char in text)


def fit(text: str, width: int) -> str:
    """One line of untrusted text, truncated to a width with an ellipsis."""
    shown = sanitize_line(text)
    if count_columns(shown) <= width:
        return shown
    kept, used = [], 0
    for char in shown:
        used += count_columns(char)
        if used > width - 2:
            break
        kept.append(char)
    return "".join(kept) + "…"
