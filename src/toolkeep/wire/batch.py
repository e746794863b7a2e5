"""Several messages in one array, as 2025-03-26 alone has it; one that cannot be read spoils no other."""

from typing import Final

import msgspec

from toolkeep.limits import MCP_BATCH, MCP_BATCH_COMMAS
from toolkeep.wire.messages import INVALID_REQUEST, PARSE_ERROR, Message, Unreadable, read_message

BATCH_VERSION: Final = "2025-03-26"

_items = msgspec.json.Decoder(list[msgspec.Raw])
_SPACE: Final = 64


def is_batch(raw: bytes) -> bool:
    """Whether a frame is an array, as far as its beginning shows."""
    return raw[:1] == b"[" or raw[:_SPACE].lstrip()[:1] == b"["


def read_batch(raw: bytes) -> list[Message | Unreadable]:
    """Each message, or why it is none; raises `Unreadable` where it is no batch at all."""
    if raw.count(b",") > MCP_BATCH_COMMAS:
        raise _too_many()
    try:
        items = _items.decode(raw)
    except (ValueError, RecursionError) as error:
        raise Unreadable(PARSE_ERROR, "Parse error: not one strict JSON value") from error
    if not items:
        raise Unreadable(INVALID_REQUEST, "Invalid request: a batch holds at least one message")
    if len(items) > MCP_BATCH:
        raise _too_many()
    return [_read(bytes(item)) for item in items]


def _read(raw: bytes) -> Message | Unreadable:
    try:
        return read_message(raw)
    except Unreadable as error:
        return error


def _too_many() -> Unreadable:
    return Unreadable(INVALID_REQUEST, f"Invalid request: a batch holds at most {MCP_BATCH} messages")


def joined(frames: list[bytes]) -> bytes:
    """The answers to a batch."""
    return b"[" + b",".join(frames) + b"]"
