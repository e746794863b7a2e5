"""Sanitizes untrusted text for display: truncated, with deceptive characters escaped."""

import json
import unicodedata
from collections.abc import Iterable
from itertools import islice
from typing import Any

from toolkeep.limits import ECHOED_CHARS
from toolkeep.text.unicode import is_blank

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
    """The JSON type of a value; an integral float is an integer, as in JSON Schema."""
    if isinstance(value, float) and value.is_integer():
        return "integer"
    return _TYPE_NAMES.get(type(value), "value")


def visible(text: str) -> str:
    """Escape control, bidi, zero-width and other invisible characters."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_plain(char) else _escape(char) for char in text)


def _is_plain(char: str) -> bool:
    category = unicodedata.category(char)
    # Other spaces are escaped as well: a no-break space makes two different names look the same.
    return char == " " or (category[0] not in "CZ" and not is_blank(char))


def _escape(char: str) -> str:
    """JSON escape, so that escaped JSON stays JSON."""
    return json.dumps(char)[1:-1] if char != "\x7f" else "\\u007f"


def visible_lines(text: str) -> str:
    """`visible` for multi-line text."""
    return "\n".join(map(visible, text.split("\n")))


def shorten(text: str, limit: int = ECHOED_CHARS) -> str:
    """Truncate to `limit` characters with an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def shorten_middle(text: str, limit: int) -> str:
    """Truncate to `limit` characters, with the ellipsis in the middle: the ends of paths tell them apart."""
    end = (limit - 1) * 2 // 3
    return text if len(text) <= limit else f"{text[: limit - 1 - end]}…{text[-end:]}"


def excerpt(text: str, limit: int) -> str:
    """The start of an untrusted text, escaped and truncated. The rest is not read.

    To escape all of it first would take a second per megabyte.
    """
    return shorten(visible(text[: limit + 1]), limit)


def truncated_lines(text: str, limit: int) -> str:
    """`excerpt` for multi-line text."""
    return shorten(visible_lines(text[: limit + 1]), limit)


def echo(value: Any) -> str:
    """A value for an error message: strings quoted and truncated, containers only by type and size."""
    if isinstance(value, str):
        if _is_short(value) and '"' not in value and "\\" not in value:
            return f'"{value}"'
        quoted = value[: ECHOED_CHARS + 1].replace("\\", "\\\\").replace('"', '\\"')
        return '"' + shorten(visible(quoted)) + '"'
    if isinstance(value, (dict, list)):
        unit = "properties" if isinstance(value, dict) else "items"
        return f"{type_name(value)} with {len(value)} {unit}"
    # Converting a huge integer to text takes quadratic time, and Python refuses beyond 4,300 digits.
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return "a very large integer"
    return shorten(json.dumps(value))


def echo_name(name: str) -> str:
    """A property or tool name for an error message."""
    return name if _is_short(name) else excerpt(name, ECHOED_CHARS)


def _is_short(text: str) -> bool:
    """Whether text needs no escaping or truncation. Fast path: a refusal asks this some thirty times."""
    return len(text) <= ECHOED_CHARS and text.isascii() and text.isprintable()


def counted(number: int, one: str, many: str = "") -> str:
    """`1 tool`, `12 tools`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(number: float) -> str:
    """Bytes in the most readable unit."""
    for unit in ("bytes", "KB", "MB"):
        if number < 1024:
            return f"{number:g} {unit}" if number == int(number) else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GB"


def listing(values: Iterable[str], count: int, limit: int, separator: str = ", ") -> str:
    """The first few of `count` values, with the number of omitted ones."""
    shown = separator.join(islice(values, limit))
    return shown if count <= limit else f"{shown} and {count - limit} more"
