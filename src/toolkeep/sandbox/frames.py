"""Length-prefixed JSON frames from a worker; all of it is hostile input.

A frame is a 4-byte big-endian length and that many bytes of JSON. Size, number of values and nesting depth
are checked on the raw bytes before parsing, because parsing is where small input becomes large memory. Large
frames are parsed in a thread (`in_thread_if_large`), so that other calls continue.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, Final, TypeVar

from toolkeep.json_values.reading import read_strict
from toolkeep.limits import BRACKETS, LARGE_ANSWER_BYTES, OUTPUT_ESCAPES, OUTPUT_VALUES

HEADER_BYTES: Final = 4
DEPTH: Final = 500
"""Nesting limit of a reply; more than any result may have."""

_PORTION_BYTES: Final = 1 << 20
"""Bytes counted at once: 100 MB in one call would hold the GIL for its duration, and need a copy."""

_STRING_QUOTES: Final = 2
_MARKS: Final = OUTPUT_VALUES + 2 * BRACKETS
"""Maximum number of commas, colons and brackets in one reply."""

_STEPS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_MARKS: Final = bytes(byte for byte in range(256) if byte not in b'"[]{},:')

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class FrameRefused(Exception):
    """The bytes are not an acceptable frame; the text says why."""


def frame(body: bytes) -> bytes:
    """A body with its length prefix."""
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def parse(body: Buffer) -> dict[str, Any]:
    """The JSON object in a frame, after the limits were checked."""
    found = parse_value(body)
    if not isinstance(found, dict):
        raise FrameRefused("it is not a JSON object")
    return found


def parse_unambiguous(body: Buffer) -> dict[str, Any]:
    """Like `parse`, but refuses duplicate keys, which parsers resolve differently."""
    found = parse(body)
    # Each member has one colon outside strings, and a dict holds each key once: a difference in counts means
    # a duplicate.
    if _outside_strings(body).count(b":") != _members(found):
        raise FrameRefused("a key appears twice")
    return found


def parse_value(body: Buffer) -> Any:
    """Any JSON value, after the limits were checked."""
    check_limits(body)
    return decode(body)


def decode(body: Buffer) -> Any:
    """Decode JSON that passed `check_limits`."""
    try:
        return read_strict(body)
    except (ValueError, RecursionError) as error:
        raise FrameRefused("it is not JSON") from error


async def in_thread_if_large(size: int, work: Callable[[], T]) -> T:
    """Run work on an answer of this size: inline, or in a thread if it would delay other calls."""
    return work() if size <= LARGE_ANSWER_BYTES else await asyncio.to_thread(work)


def check_limits(body: Buffer) -> None:
    """Enforce limits on raw bytes: parsing 10 MB of `[],` would take two seconds."""
    if len(body) <= BRACKETS and _opened(bytes(body)) <= DEPTH:
        return  # Below every limit, even if all brackets stood outside strings.
    outside = _outside_strings(body)
    if _opened(outside) > BRACKETS:
        raise FrameRefused(f"it holds more than {BRACKETS} arrays and objects")
    if _values(outside) > OUTPUT_VALUES:
        raise FrameRefused(f"it holds more than {OUTPUT_VALUES} values")
    if _depth(outside) > DEPTH:
        raise FrameRefused(f"it is nested more than {DEPTH} levels deep")


def _opened(text: bytes) -> int:
    return text.count(b"[") + text.count(b"{")


def _values(text: bytes) -> int:
    return text.count(b",") + text.count(b":") + _opened(text)


def _members(value: Any) -> int:
    """Number of members of all objects in a value."""
    count, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        if type(one) is dict:
            count += len(one)
            waiting += one.values()
        elif type(one) is list:
            waiting += one
    return count


def _outside_strings(body: Buffer) -> bytes:
    """The structural characters of JSON outside strings; a long string may contain any number of them."""
    outside = bytearray()
    quotes = escapes = 0
    for portion in _portions(body):
        escapes += portion.count(b"\\")
        if escapes > OUTPUT_ESCAPES:
            raise FrameRefused(f"it holds more than {OUTPUT_ESCAPES} escapes")
        is_inside = quotes % _STRING_QUOTES
        if is_inside and b'"' not in portion:
            continue
        unescaped = portion.replace(b"\\\\", b"").replace(b'\\"', b"")
        # An empty string does not change what surrounds it; removing those halves the time.
        marks = unescaped.translate(None, _NO_MARKS).replace(b'""', b"")
        outside += b"".join(marks.split(b'"')[is_inside::2])
        quotes += unescaped.count(b'"')
        # Stop early: each string of valid JSON follows a structural character, so more marks mean more
        # values.
        if len(outside) > _MARKS:
            raise FrameRefused(f"it holds more than {OUTPUT_VALUES} values")
    return bytes(outside)


def _portions(body: Buffer) -> Iterator[bytes]:
    """Split the bytes; a backslash is never separated from what it escapes."""
    view, start = memoryview(body), 0
    while start < len(view):
        portion = bytes(view[start : start + _PORTION_BYTES])
        is_open = (len(portion) - len(portion.rstrip(b"\\"))) % 2 and len(portion) > 1
        portion = portion[:-1] if is_open else portion
        yield portion
        start += len(portion)


def _depth(outside: bytes) -> int:
    """Bracket nesting depth of text without strings; may be low by up to two levels."""
    brackets = outside.translate(None, b",:")
    # Most brackets are innermost pairs; removing them first takes a fifth of the time.
    inner_gone = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return max(accumulate(map(_STEPS.__getitem__, inner_gone)), default=0)
