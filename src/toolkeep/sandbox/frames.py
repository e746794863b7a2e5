"""Reads what a worker says; all of it is hostile.

Size and number of values are bounded before anything is parsed. A frame is four bytes of length, big-endian,
and that many bytes of JSON.
"""

import json
from typing import Any, Final, NoReturn

from toolkeep.limits import BRACKETS

HEADER_BYTES: Final = 4
NODES: Final = 1_000_000
"""JSON values in one reply; parsing so many takes about a tenth of a second."""

_STRING_QUOTES: Final = 2


class FrameRefused(Exception):
    """The bytes are no frame that is worth parsing; says why."""


def frame(body: bytes) -> bytes:
    """A body with its length before it."""
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object in a frame, if it is small enough to look at."""
    found = parse_value(body)
    if not isinstance(found, dict):
        raise FrameRefused("it is not a JSON object")
    return found


def parse_value(body: bytes) -> Any:
    """Any JSON, if it is small enough to look at."""
    weigh(body)
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FrameRefused("it is not JSON") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def weigh(body: bytes) -> None:
    """Count brackets and values on the raw bytes: to parse 10 MB of `[],` would take two seconds."""
    if _values(body) <= BRACKETS:
        return  # fewer than either limit, even if all of them stood outside strings
    outside = _outside_strings(body)
    if outside.count(b"[") + outside.count(b"{") > BRACKETS:
        raise FrameRefused(f"it holds more than {BRACKETS} arrays and objects")
    if _values(outside) > NODES:
        raise FrameRefused(f"it holds more than {NODES} values")


def _values(text: bytes) -> int:
    return text.count(b",") + text.count(b":") + text.count(b"[") + text.count(b"{")


def _outside_strings(body: bytes) -> bytes:
    """The JSON without what stands in its strings: a long text may hold any number of brackets."""
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') > _STRING_QUOTES * NODES:
        raise FrameRefused(f"it holds more than {NODES} values")
    return b"".join(unescaped.split(b'"')[::2])
