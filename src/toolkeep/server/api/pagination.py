"""Cursor pagination: a cursor encodes the last item shown, so that pages stay stable while items change.

A cursor is not secret and grants nothing: a forged one only starts elsewhere in what its caller may see.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from toolkeep.errors import Code
from toolkeep.server.http.problem_details import RequestRefused

T = TypeVar("T")


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some of a list, and where it goes on."""

    items: list[Any]
    next: str | None = None
    """The cursor of the next page; null on the last."""


def encode_cursor(place: Any) -> str:
    """Encode a position as a cursor."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def decode_cursor(cursor: str, kind: type[T]) -> T:
    """Decode a cursor; raises if it is malformed."""
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        return msgspec.json.decode(raw, type=kind)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise RequestRefused(
            Code.REQUEST_INVALID, "the cursor is invalid", hint="take it from `next` of the previous page"
        ) from error


def cut(items: Sequence[T], limit: int, place: Callable[[T], Any], show: Callable[[T], Any]) -> Page:
    """The first `limit` items, and a cursor if there are more."""
    shown = items[:limit]
    following = encode_cursor(place(shown[-1])) if len(items) > limit else None
    return Page(items=[show(one) for one in shown], next=following)
