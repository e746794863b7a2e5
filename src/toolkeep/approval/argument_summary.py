"""Summarizes arguments for a person: every name and the start of every value, so that none hides another.

In come arguments that a model wrote. Out goes JSON-like text, the shortest member of each object first. Long
strings are truncated; the number of omitted characters stands outside the quotes, where no value can forge
it. Argument names are never omitted: a body of 200,000 characters must not hide the recipient.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

_CUTS: Final = ((4_000, 1_000), (1_000, 200), (200, 50), (80, 10))
"""Limits for truncation, tried in order: characters of a string, and members of a list or nested object."""

_SUMMARY_CHARS: Final = 40
"""Characters of a name or value in a one-line summary: two or three arguments fit into a line of a list."""


_LONG_CHARS: Final = 400
"""A longer value stands below all shorter ones, whatever its rank: it would push them out of sight."""


class Outline(NamedTuple):
    """Arguments as shown to a person."""

    text: str
    is_cut: bool
    """Whether something was truncated; the text says what and where."""


def outline(arguments: Mapping[str, Any], room: int, ranks: Mapping[str, int] = {}) -> Outline:
    """All arguments if they fit into `room` characters; else the start of every value."""
    text = _Writer(room, room).text(arguments, ranks)
    if len(text) <= room:
        return Outline(text, is_cut=False)
    for chars, members in _CUTS:
        text = _Writer(chars, members).text(arguments, ranks)
        if len(text) <= room:
            break
    return Outline(text, is_cut=True)


def summary(
    arguments: Mapping[str, Any],
    room: int,
    *,
    value_chars: int = _SUMMARY_CHARS,
    ranks: Mapping[str, int] = {},
) -> str:
    """One line with the name and start of as many arguments as fit, in the order of `shortest_first`."""
    parts: list[str] = []
    for name, value in shortest_first(arguments, ranks).items():
        text = json.dumps(value, ensure_ascii=False)
        shown = text if len(text) <= value_chars else f"{text[:value_chars]}…"
        parts.append(f"{json.dumps(name[:_SUMMARY_CHARS], ensure_ascii=False)}: {shown}")
        if sum(map(len, parts)) > room:
            break
    return f"{{{', '.join(parts)}}}"


def shortest_first(members: Mapping[str, Any], ranks: Mapping[str, int] = {}) -> dict[str, Any]:
    """The members sorted by the length of their values; those that are not long by their rank first."""

    def place(member: tuple[str, Any]) -> tuple[bool, int, int]:
        size = _size(member[1])
        return size > _LONG_CHARS, ranks.get(member[0], 0), size

    return dict(sorted(members.items(), key=place))


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    return len(json.dumps(value, ensure_ascii=False))


class _Writer:
    """Formats one value, line by line."""

    def __init__(self, chars: int, members: int) -> None:
        self._chars = chars
        self._members = members

    def text(self, arguments: Mapping[str, Any], ranks: Mapping[str, int]) -> str:
        return "\n".join(self._object(shortest_first(arguments, ranks), "", len(arguments)))

    def _lines(self, value: Any, indent: str) -> list[str]:
        if isinstance(value, dict) and value:
            return list(self._object(shortest_first(value), indent, self._members))
        if isinstance(value, list) and value:
            return list(self._list(value, indent))
        return [self._scalar(value)]

    def _object(self, value: Mapping[str, Any], indent: str, members: int) -> Iterator[str]:
        yield "{" if value else "{}"
        shown = list(value.items())[:members]
        for number, (name, inside) in enumerate(shown, 1):
            lines = self._lines(inside, f"{indent}  ")
            lines[0] = f"{indent}  {self._scalar(name)}: {lines[0]}"
            yield from _closed(lines, is_last=number == len(value))
        if len(value) > len(shown):
            yield f"{indent}  … {len(value) - len(shown):,} more members"
        if value:
            yield f"{indent}}}"

    def _list(self, value: list[Any], indent: str) -> Iterator[str]:
        yield "["
        shown = value[: self._members]
        for number, inside in enumerate(shown, 1):
            lines = self._lines(inside, f"{indent}  ")
            lines[0] = f"{indent}  {lines[0]}"
            yield from _closed(lines, is_last=number == len(value))
        if len(value) > len(shown):
            yield f"{indent}  … {len(value) - len(shown):,} more items"
        yield f"{indent}]"

    def _scalar(self, value: Any) -> str:
        if isinstance(value, str):
            shown = json.dumps(value[: self._chars], ensure_ascii=False)
            return shown + self._more(len(value))
        text = json.dumps(value)
        return text[: self._chars] + self._more(len(text))

    def _more(self, size: int) -> str:
        return f" … {size - self._chars:,} more characters" if size > self._chars else ""


def _closed(lines: list[str], *, is_last: bool) -> list[str]:
    return lines if is_last else [*lines[:-1], f"{lines[-1]},"]
