"""How values, names and types are shown: cut, and with nothing in them that could deceive a reader."""

import json
import unicodedata
from collections.abc import Iterable
from itertools import islice
from typing import Any

from toolkeep.characters import is_blank
from toolkeep.limits import ECHOED_CHARS

HIDDEN = "(hidden)"

_TYPE_NAMES = {
    dict: "object",
    list: "array",
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


def type_name(value: object) -> str:
    """The JSON type of a value; a whole float is an integer, as JSON Schema has it."""
    if isinstance(value, float) and value.is_integer():
        return "integer"
    return _TYPE_NAMES.get(type(value), "value")


def visible(text: str) -> str:
    """Text with control, bidi, zero-width and other unseen characters escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_plain(char) else _escape(char) for char in text)


def _is_plain(char: str) -> bool:
    category = unicodedata.category(char)
    return char == " " or (category[0] not in "CZ" and not is_blank(char))


def _escape(char: str) -> str:
    """As JSON escapes it, so that JSON stays JSON."""
    return json.dumps(char)[1:-1] if char != "\x7f" else "\\u007f"


def visible_lines(text: str) -> str:
    """`visible`, for text of several lines."""
    return "\n".join(map(visible, text.split("\n")))


def shorten(text: str, limit: int = ECHOED_CHARS) -> str:
    """At most `limit` characters, an ellipsis where something is missing."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def excerpt(text: str, limit: int) -> str:
    """The beginning of a hostile text, visible and at most `limit` characters; of the rest nothing is read.

    To make all of it visible first would take a second for each megabyte.
    """
    return shorten(visible(text[: limit + 1]), limit)


def excerpt_lines(text: str, limit: int) -> str:
    """`excerpt`, for text of several lines."""
    return shorten(visible_lines(text[: limit + 1]), limit)


def echo(value: Any) -> str:
    """A value as an error shows it: text quoted and cut, containers only by kind and size."""
    if isinstance(value, str):
        if _is_short(value) and '"' not in value and "\\" not in value:
            return f'"{value}"'
        quoted = value[: ECHOED_CHARS + 1].replace("\\", "\\\\").replace('"', '\\"')
        return '"' + shorten(visible(quoted)) + '"'
    if isinstance(value, (dict, list)):
        unit = "properties" if isinstance(value, dict) else "items"
        return f"{type_name(value)} with {len(value)} {unit}"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return "a very large integer"
    return shorten(json.dumps(value))


def echo_name(name: str) -> str:
    """A property or tool name as an error shows it."""
    return name if _is_short(name) else excerpt(name, ECHOED_CHARS)


def _is_short(text: str) -> bool:
    """Whether text is shown as it is, as most is; a refusal asks this some thirty times."""
    return len(text) <= ECHOED_CHARS and text.isascii() and text.isprintable()


def counted(number: int, one: str, many: str = "") -> str:
    """`1 tool`, `12 tools`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listing(values: Iterable[str], count: int, limit: int, separator: str = ", ") -> str:
    """The first few of `count` values in a sentence, with the number that is left out."""
    shown = separator.join(islice(values, limit))
    return shown if count <= limit else f"{shown} and {count - limit} more"
