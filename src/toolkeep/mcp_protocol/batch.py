"""JSON-RPC batches (only in 2025-03-26); a malformed message does not affect the others."""

from typing import Final

import msgspec

from toolkeep.limits import MCP_BATCH, MCP_BATCH_COMMAS
from toolkeep.mcp_protocol.jsonrpc import INVALID_REQUEST, PARSE_ERROR, Message, Unreadable, read_message

BATCH_VERSION: Final = "2025-03-26"

_items = msgspec.json.Decoder(list[msgspec.Raw])
_SPACE: Final = 64


def is_batch(raw: bytes) -> bool:
    """Whether a frame begins like an array."""
    return raw[:1] == b"[" or raw[:_SPACE].lstrip()[:1] == b"["


def read_batch(raw: bytes) -> list[Message | Unreadable]:
    """Parse each message, or give its error; raises `Unreadable` if it is no batch at all."""
    # Counted on the raw bytes before parsing: a message of four megabytes can hold millions of items.
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
    # Each item is parsed by itself, with the checks and limits of a single message.
    return [_read(bytes(item)) for item in items]


def _read(raw: bytes) -> Message | Unreadable:
    try:
        return read_message(raw)
    except Unreadable as error:
        return error


def _too_many() -> Unreadable:
    return Unreadable(INVALID_REQUEST, f"Invalid request: a batch holds at most {MCP_BATCH} messages")


def joined(frames: list[bytes]) -> bytes:
    """Join the responses to a batch."""
    return b"[" + b",".join(frames) + b"]"
