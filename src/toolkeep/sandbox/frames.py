"""Reads what a worker says; all of it is hostile.

Size, number and nesting of values are bounded before anything is parsed. A frame is four bytes of length,
big-endian, and that many bytes of JSON.
"""

import json
from itertools import accumulate
from typing import Any, Final, NoReturn

from toolkeep.limits import BRACKETS, OUTPUT_VALUES

HEADER_BYTES: Final = 4
DEPTH: Final = 500
"""Nesting of a reply: more than any result may have. How deep Python's own parser goes differs by version:
1,000 levels in 3.11, some 10,000 in 3.13."""

_STRING_QUOTES: Final = 2
_STEPS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_MARKS: Final = bytes(byte for byte in range(256) if byte not in b'"[]{},:')


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
    if _opened(body) <= DEPTH and _values(body) <= BRACKETS:
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


def _outside_strings(body: bytes) -> bytes:
    """The brackets, commas and colons of JSON that stand in no string: a long text may hold any number."""
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') > _STRING_QUOTES * OUTPUT_VALUES:
        raise FrameRefused(f"it holds more than {OUTPUT_VALUES} values")
    # Two quotes side by side change nothing for what is around them; without those it takes half of the time.
    marks = unescaped.translate(None, _NO_MARKS).replace(b'""', b"")
    return b"".join(marks.split(b'"')[::2])


def _depth(outside: bytes) -> int:
    """How deep brackets are nested in text without strings; up to two levels may be left out."""
    brackets = outside.translate(None, b",:")
    # The innermost ones are most of them: without them it takes a fifth of the time.
    inner_gone = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return max(accumulate(map(_STEPS.__getitem__, inner_gone)), default=0)
