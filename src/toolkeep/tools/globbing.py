"""Patterns for names: `*.py`, `src/**/*.{ts,tsx}`, `[a-c]?`; matched in linear time.

A pattern without a slash is about the name alone, at any depth; one with a slash about the path from where
the search began.
"""

import re2

from toolkeep.definitions.context import ToolFailed

_PATTERN_CHARS = 500


class Glob:
    """One pattern."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > _PATTERN_CHARS:
            raise ToolFailed(f"a pattern for names has at most {_PATTERN_CHARS} characters")
        self._is_about_names = "/" not in pattern
        try:
            self._expression = re2.compile(_translated(pattern.removeprefix("./")))
        except re2.error as error:
            raise ToolFailed(f"'{pattern}' is no pattern for names: write something like *.py") from error

    def fits(self, relative: str) -> bool:
        """Whether the pattern is about this path."""
        text = relative.rpartition("/")[2] if self._is_about_names else relative
        return self._expression.fullmatch(text) is not None


def _translated(pattern: str) -> str:
    """The pattern as a regular expression."""
    written: list[str] = []
    depth = position = 0
    while position < len(pattern):
        rest = pattern[position:]
        step = 1
        if rest.startswith("**/"):
            written.append("(?:.*/)?")
            step = 3
        elif rest.startswith("**"):
            written.append(".*")
            step = 2
        elif rest[0] == "*":
            written.append("[^/]*")
        elif rest[0] == "?":
            written.append("[^/]")
        elif rest[0] == "[" and (end := rest.find("]", 2)) > 0:
            written.append(_one_of(rest[1:end]))
            step = end + 1
        elif rest[0] == "{" and "}" in rest:
            written.append("(?:")
            depth += 1
        elif rest[0] == "}" and depth:
            written.append(")")
            depth -= 1
        elif rest[0] == "," and depth:
            written.append("|")
        else:
            written.append(re2.escape(rest[0]))
        position += step
    return "(?s)" + "".join(written)


def _one_of(characters: str) -> str:
    is_not = characters[0] in "!^"
    escaped = (
        characters[is_not:].replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("^", "\\^")
    )
    return f"[{'^/' if is_not else ''}{escaped}]"
