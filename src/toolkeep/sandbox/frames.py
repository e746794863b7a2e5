"""Reads what a worker says; all of it is hostile.

Size, number and nesting of values are bounded before anything is parsed. A frame is four bytes of length,
big-endian, and that many bytes of JSON. What is large is parsed by a thread (`aside`): other calls go on.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, Final, TypeVar

import msgspec

from toolkeep.limits import BRACKETS, LARGE_ANSWER_BYTES, OUTPUT_ESCAPES, OUTPUT_VALUES

HEADER_BYTES: Final = 4
DEPTH: Final = 500
"""Nesting of a reply: more than any result may have."""

_PORTION_BYTES: Final = 1 << 20
"""Weighed at once: a hundred megabytes in one go hold the interpreter for as long as it takes, and a copy."""

_STRING_QUOTES: Final = 2
_MARKS: Final = OUTPUT_VALUES + 2 * BRACKETS
"""Commas, colons and brackets that the values of one answer may have at most."""

_STEPS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_MARKS: Final = bytes(byte for byte in range(256) if byte not in b'"[]{},:')

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")

_decode: Final = msgspec.json.Decoder().decode


class FrameRefused(Exception):
    """The bytes are no frame that is worth parsing; says why."""


def frame(body: bytes) -> bytes:
    """A body with its length before it."""
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def parse(body: Buffer) -> dict[str, Any]:
    """The JSON object in a frame, if it is small enough to look at."""
    found = parse_value(body)
    if not isinstance(found, dict):
        raise FrameRefused("it is not a JSON object")
    return found


def parse_value(body: Buffer) -> Any:
    """Any JSON, if it is small enough to look at."""
    weigh(body)
    return decode(body)


def decode(body: Buffer) -> Any:
    """Any JSON that was weighed."""
    # Not `json`: that wants the whole body once more as text, and takes three times as long.
    try:
        return _decode(body)
    except (ValueError, RecursionError) as error:
        raise FrameRefused("it is not JSON") from error


async def aside(size: int, work: Callable[[], T]) -> T:
    """What work on so many bytes of an answer gives: done by a thread where other calls would notice it."""
    return work() if size <= LARGE_ANSWER_BYTES else await asyncio.to_thread(work)


def weigh(body: Buffer) -> None:
    """Count brackets and values on the raw bytes: to parse 10 MB of `[],` would take two seconds."""
    if len(body) <= BRACKETS and _opened(bytes(body)) <= DEPTH:
        return  # fewer than any limit, even if all of them stood outside strings
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


def _outside_strings(body: Buffer) -> bytes:
    """The brackets, commas and colons of JSON that stand in no string: a long text may hold any number."""
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
        # Two quotes side by side change nothing for what is around them; without them it takes half.
        marks = unescaped.translate(None, _NO_MARKS).replace(b'""', b"")
        outside += b"".join(marks.split(b'"')[is_inside::2])
        quotes += unescaped.count(b'"')
        if len(outside) > _MARKS:  # each string of valid JSON has a mark before it
            raise FrameRefused(f"it holds more than {OUTPUT_VALUES} values")
    return bytes(outside)


def _portions(body: Buffer) -> Iterator[bytes]:
    """The bytes, some at a time; a backslash never stands apart from what it escapes."""
    view, start = memoryview(body), 0
    while start < len(view):
        portion = bytes(view[start : start + _PORTION_BYTES])
        is_open = (len(portion) - len(portion.rstrip(b"\\"))) % 2 and len(portion) > 1
        portion = portion[:-1] if is_open else portion
        yield portion
        start += len(portion)


def _depth(outside: bytes) -> int:
    """How deep brackets are nested in text without strings; up to two levels may be left out."""
    brackets = outside.translate(None, b",:")
    # The innermost ones are most of them: without them it takes a fifth of the time.
    inner_gone = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return max(accumulate(map(_STEPS.__getitem__, inner_gone)), default=0)
