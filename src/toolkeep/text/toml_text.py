"""Edits one table of a TOML document in its text, and leaves every other character unchanged.

Parsing and writing would lose comments and layout. Each edit is parsed again and compared with what it should
say; where the text cannot be edited so, such as a table that is written inline, ValueError is raised.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

_HEADER = re.compile(r"^[ \t]*\[[^\n]*$", re.MULTILINE)
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def with_table(text: str, path: tuple[str, str], value: Mapping[str, Any]) -> str:
    """The text with this table at `path`, at the end or in the place of the one that is there."""
    wanted = tomllib.loads(text)
    _parent(wanted, path)[path[1]] = dict(value)
    newline = "\r\n" if "\r\n" in text else "\n"
    kept = without_table(text, path).rstrip("\r\n")
    written = newline.join(_lines(path, value))
    made = (f"{kept}{newline}{newline}" if kept.strip() else "") + written + newline
    return _checked(made, wanted)


def without_table(text: str, path: tuple[str, str]) -> str:
    """The text without the table at `path` and the tables inside it; unchanged if there is none."""
    wanted = tomllib.loads(text)
    if _parent(wanted, path).pop(path[1], None) is None:
        return text
    if not wanted[path[0]]:
        del wanted[path[0]]
    starts = [found.start() for found in _HEADER.finditer(text)]
    ends = [*starts[1:], len(text)]
    kept = [text[: starts[0]] if starts else text]
    for start, end in zip(starts, ends, strict=False):
        section = text[start:end]
        kept.append(_comments_after(section) if _is_below(section, path) else section)
    return _checked("".join(kept), wanted)


def _parent(data: dict[str, Any], path: tuple[str, str]) -> dict[str, Any]:
    parent = data.setdefault(path[0], {})
    if not isinstance(parent, dict):
        raise ValueError(f"{path[0]} is not a table")
    return parent


def _is_below(section: str, path: tuple[str, str]) -> bool:
    """Whether a section with its header is the table at `path`, or one inside it."""
    try:
        data = tomllib.loads(section.split("\n", 1)[0])
    except tomllib.TOMLDecodeError:  # a line of a multi-line array or string that begins with a bracket
        return False
    inside = data.get(path[0])
    return isinstance(inside, dict) and path[1] in inside


def _comments_after(section: str) -> str:
    """The comments at the end of a section, which are about the next one."""
    lines = section.splitlines(keepends=True)
    last = max(at for at, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    return "".join(lines[last + 1 :]).lstrip("\r\n")


def _checked(text: str, wanted: dict[str, Any]) -> str:
    if _without_empty(tomllib.loads(text)) != _without_empty(wanted):
        raise ValueError("the text cannot be edited in place")
    return text


def _without_empty(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value != {}}


def _lines(path: tuple[str, ...], value: Mapping[str, Any]) -> Iterator[str]:
    yield f"[{'.'.join(map(_key, path))}]"
    yield from (f"{_key(key)} = {_value(item)}" for key, item in value.items() if not isinstance(item, dict))
    for key, item in value.items():
        if isinstance(item, dict):
            yield from ("", *_lines((*path, key), item))


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _value(text)


def _value(value: Any) -> str:
    """A boolean, a string, or a list of strings: JSON is TOML here, but for the character DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
