"""Glob patterns: `*.py`, `src/**/*.{ts,tsx}`, `[a-c]?`; matched in linear time, so none can stall a search.

A pattern without a slash matches the name, at any depth; one with a slash the path from where the search
began. `*`, `?` and `[...]` never match a slash, `**` as a whole path segment matches any number of folders,
and a backslash escapes the next character.
"""

from typing import Final

import re2

from toolkeep.definitions.tool_context import ToolFailed

_PATTERN_CHARS: Final = 500
"""Longer than any real pattern; its compiled form grows with it."""
_WILD: Final = frozenset("*?[\\")
_CLASSES: Final = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-.0-~", "lower": "a-z", "print": " -.0-~", "punct": r"!-.:-@\[-`{-~", "space": r"\s\x0b",
    "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
"""The POSIX character classes, without the slash."""


class NoPattern(ValueError):
    """The text is no valid pattern."""


class Glob:
    """One pattern."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > _PATTERN_CHARS:
            raise ToolFailed(f"a pattern for names has at most {_PATTERN_CHARS} characters")
        self._is_about_names = "/" not in pattern.rstrip("/")
        try:
            self._expression = _Expression(translate(pattern.removeprefix("./").strip("/")))
        except NoPattern as error:
            hint = "write for example *.py; escape a literal character with a backslash"
            raise ToolFailed(f"'{pattern}' is not a valid name pattern ({error}); {hint}") from error

    def fits(self, relative: str) -> bool:
        """Whether the path matches the pattern."""
        return self._expression.fits(relative.rpartition("/")[2] if self._is_about_names else relative)


class _Expression:
    """A compiled pattern."""

    def __init__(self, text: str) -> None:
        options = re2.Options()
        options.log_errors = False
        try:
            self._matches = re2.compile(f"(?s){text}", options).fullmatch
        except (re2.error, UnicodeEncodeError) as error:
            raise NoPattern("a range or a brace in it is wrong") from error

    def fits(self, name: str) -> bool:
        """Whether the whole name matches."""
        return self._matches(as_utf8(name)) is not None


def as_utf8(name: str) -> bytes:
    """A file name for RE2, which takes UTF-8 alone; bytes that are none become U+FFFD."""
    try:
        return name.encode()
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()


def translate(pattern: str, *, is_gits: bool = False, is_about_names: bool = False) -> str:
    """The pattern as a regular expression of RE2, by git's rules and without braces where it is git's.

    Where it is about names, nothing in it stands for a slash. Raises `NoPattern`.
    """
    return _Translation(pattern, is_gits=is_gits, is_about_names=is_about_names).written()


class _Translation:
    """Translates a pattern into a regular expression, from left to right."""

    def __init__(self, pattern: str, *, is_gits: bool, is_about_names: bool) -> None:
        self._pattern = pattern
        self._is_gits = is_gits
        self._is_about_names = is_about_names
        self._at = 0
        self._depth = 0
        self._parts: list[str] = []

    def written(self) -> str:
        while self._at < len(self._pattern):
            self._parts.append(self._next())
        if self._depth:
            raise NoPattern("a { is not closed")
        return "".join(self._parts)

    def _next(self) -> str:
        character = self._pattern[self._at]
        self._at += 1
        if character == "*":
            return self._stars()
        if character == "?":
            return "[^/]"
        if character == "[":
            return self._one_of()
        if character == "\\":
            return _escaped(self._taken("a backslash at its end takes nothing"))
        if not self._is_gits and character in "{},":
            return self._braces(character)
        return _escaped(character)

    def _taken(self, otherwise: str) -> str:
        if self._at == len(self._pattern):
            raise NoPattern(otherwise)
        self._at += 1
        return self._pattern[self._at - 1]

    def _stars(self) -> str:
        begin = self._at - 1
        while self._pattern.startswith("*", self._at):
            self._at += 1
        before, after = self._pattern[:begin], self._pattern[self._at :]
        if self._at - begin > 1 and self._is_step_begun(before):
            if after.startswith("/"):
                self._at += 1
                return "(?:.*/)?"
            if not after and not self._is_about_names:
                return ".*"
        return "[^/]*"

    def _is_step_begun(self, before: str) -> bool:
        """Whether a path segment begins here; for git also after plain text, which it compares first."""
        return not before or before.endswith("/") or (self._is_gits and _WILD.isdisjoint(before))

    def _braces(self, character: str) -> str:
        if character == "{":
            self._depth += 1
            return "(?:"
        if not self._depth:
            return _escaped(character)
        self._depth -= character == "}"
        return ")" if character == "}" else "|"

    def _one_of(self) -> str:
        """`[a-c]`, `[!a-c]`, `[]a]`, `[[:digit:]]`; none of them matches a slash."""
        is_not = self._pattern.startswith(("!", "^"), self._at)
        self._at += is_not
        parts: list[str] = []
        while (one := self._member()) != "]" or not parts:
            is_range = self._pattern.startswith("-", self._at) and not self._pattern.startswith(
                "]", self._at + 1
            )
            if len(one) > 2:
                parts.append(_CLASSES[one[2:-2]])
            elif is_range:
                self._at += 1
                parts.append(_range(one[-1], self._member()[-1]))
            else:
                parts.append(_range(one[-1], one[-1]))
        inside = "".join(parts)
        if is_not:
            return f"[^/{inside}]"
        return f"[{inside}]" if inside else r"[^\x00-\x{10FFFF}]"

    def _member(self) -> str:
        """One character, escaped or not, or a class."""
        character = self._taken("a [ is not closed")
        if character == "\\":
            return f"\\{self._taken('a [ is not closed')}"
        if character == "[" and self._pattern.startswith(":", self._at):
            name, colon, _ = self._pattern[self._at + 1 :].partition(":]")
            if colon and name in _CLASSES:
                self._at += len(name) + 3
                return f"[:{name}:]"
        return character


def _escaped(character: str) -> str:
    return character if character.isalnum() else _code(character)


def _range(first: str, last: str) -> str:
    """A range of characters without the slash; empty if there is none between."""
    if first <= "/" <= last:
        return _range(first, ".") + _range("0", last)
    return "" if last < first else f"{_code(first)}-{_code(last)}"


def _code(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"
