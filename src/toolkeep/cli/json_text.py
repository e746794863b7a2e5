"""Edits one member of a JSON object in its text, and leaves every other character unchanged.

Parsing and writing would lose line endings, escapes, digits and layout. The input must be a valid JSON object
without duplicate keys.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_SPACE = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r"^[ \t]+(?=\S)", re.MULTILINE)
_DECODER = json.JSONDecoder()


class _Member(NamedTuple):
    """Position of a member."""

    key: str
    start: int
    value: int
    end: int


def with_member(text: str, path: tuple[str, ...], value: Any) -> str:
    """The text with `value` at `path`; missing objects are created."""
    start, rest = _innermost(text, path)
    members = list(_members(text, start))
    for member in members:
        if member.key == rest[0]:
            return text[: member.value] + _written(value, text, member.start) + text[member.end :]
    for key in reversed(rest[1:]):
        value = {key: value}
    return _inserted(text, start, members, rest[0], value)


def without_member(text: str, path: tuple[str, ...]) -> str:
    """The text without the member at `path`; unchanged if there is none."""
    start, rest = _innermost(text, path)
    members = list(_members(text, start))
    at = next((at for at, member in enumerate(members) if (member.key,) == rest), None)
    if at is None:
        return text
    if at + 1 < len(members):
        return text[: members[at].start] + text[members[at + 1].start :]
    if at:
        return text[: members[at - 1].end] + text[members[at].end :]
    return text[: start + 1] + text[_after_space(text, members[at].end) :]


def _innermost(text: str, path: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """Start of the innermost existing object on the path, and the remaining keys."""
    start = _after_space(text, 0)
    for depth, key in enumerate(path[:-1]):
        member = next((member for member in _members(text, start) if member.key == key), None)
        if member is None:
            return start, path[depth:]
        start = member.value
    return start, path[-1:]


def _members(text: str, start: int) -> Iterator[_Member]:
    """The members of the object that starts there."""
    at = _after_space(text, start + 1)
    while text[at] != "}":
        key, end = _DECODER.raw_decode(text, at)
        value = _after_space(text, _after_space(text, end) + 1)
        _, end = _DECODER.raw_decode(text, value)
        yield _Member(key, at, value, end)
        at = _after_space(text, end)
        if text[at] == ",":
            at = _after_space(text, at + 1)


def _inserted(text: str, start: int, members: list[_Member], key: str, value: Any) -> str:
    """The text with one more member at the end of an object, in the layout of its first member."""
    name = json.dumps(key, ensure_ascii=False)
    if members:
        first, end = members[0].start, members[-1].end
        space = text[start + 1 : first] or " "
        return f"{text[:end]},{space}{name}: {_written(value, text, first)}{text[end:]}"
    line = text[text.rfind("\n", 0, start) + 1 : start]
    outer = line[: len(line) - len(line.lstrip(" \t"))]
    whole = _lines({key: value}, text, outer)
    return text[:start] + whole + text[_after_space(text, start + 1) + 1 :]


def _written(value: Any, text: str, beside: int) -> str:
    """A value in the layout of the line that starts with `beside`; otherwise on one line."""
    indent = text[text.rfind("\n", 0, beside) + 1 : beside]
    is_inline = indent.strip(" \t") or "\n" not in text[:beside]
    return json.dumps(value, ensure_ascii=False) if is_inline else _lines(value, text, indent)


def _lines(value: Any, text: str, indent: str) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    return f"{newline}{indent}".join(json.dumps(value, indent=_unit(text), ensure_ascii=False).split("\n"))


def _unit(text: str) -> str:
    """The indentation of the text, from its first indented line."""
    found = _INDENT.search(text)
    return found[0] if found else "  "


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
