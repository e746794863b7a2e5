"""JSON-RPC 2.0 for MCP: parses one message into a `Message` or a `ProtocolError`, and encodes responses.

Input is hostile. It must be strict JSON without duplicate keys. The arguments of a call stay raw bytes: the
validation stage parses them itself and reports problems in terms that a model can use.
"""

import re
from typing import Any, Final, TypeGuard

import jiter
import msgspec

from toolkeep.limits import MCP_ID_CHARS, MCP_VALUES

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
OVERLOADED: Final = -32000
"""Server-defined: too many concurrent requests, or rate limited."""
NOT_FOUND_BEFORE_2026: Final = -32002
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022

Id = int | str
encode = msgspec.json.encode

_ARGUMENTS: Final = b'"arguments"'
_ELSEWHERE: Final = b"0"
_PLACES: Final = 8
"""Occurrences of the arguments' bytes that are tried, if they occur several times in a message."""
_WIDEST_ID: Final = 2**63
"""Bound of integer ids: signed 64 bits, the widest integer that JSON libraries commonly hold."""
_NOTIFICATION: Final = b'{"jsonrpc":"2.0","method":'
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A string literal, also an unterminated one: linear time, since each byte is visited once."""
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


class ProtocolError(Exception):
    """An error to be sent as a JSON-RPC error response."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def to_dict(self) -> dict[str, Any]:
        """The error object."""
        shown: dict[str, Any] = {"code": self.code, "message": self.message}
        return shown if self.data is None else {**shown, "data": self.data}


class Unreadable(ProtocolError):
    """A malformed message; `id` is that of the intended request, if it can be determined."""

    def __init__(self, code: int, message: str, message_id: Id | None = None) -> None:
        super().__init__(code, message)
        self.id = message_id


class Message(msgspec.Struct, eq=False):
    """One request, notification or response."""

    id: Id | None
    """None for a notification."""
    method: str
    """Empty for a response."""
    params: dict[str, Any]
    arguments: bytes | dict[str, Any] | None = None
    """`params.arguments` as received."""
    result: Any = None
    error: Any = None

    @property
    def meta(self) -> dict[str, Any]:
        """`params._meta`; empty if it is not an object."""
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}


class _Params(msgspec.Struct):
    arguments: msgspec.Raw = msgspec.Raw(b"")


class _Outline(msgspec.Struct):
    params: _Params | None = None


_outline = msgspec.json.Decoder(_Outline)


def read_message(raw: bytes) -> Message:
    """Parse a message; raises `Unreadable`."""
    arguments = _raw_arguments(raw)
    data = _strict(raw) if arguments is None else _around(raw, arguments)
    # Exact type checks throughout: bool is an int in Python, so `"id": true` would pass as 1.
    if type(data) is not dict or data.get("jsonrpc") != "2.0":
        raise Unreadable(INVALID_REQUEST, "Invalid request: not one JSON-RPC 2.0 object")
    message_id = _read_id(data)
    method = data.get("method")
    if method is None and message_id is not None and ("result" in data or "error" in data):
        return Message(message_id, "", {}, None, data.get("result"), data.get("error"))
    params = data.get("params", {})
    if type(method) is not str or type(params) is not dict:
        text = "Invalid request: method must be text and params an object"
        raise Unreadable(INVALID_REQUEST, text, message_id)
    if arguments is None and "arguments" in params:  # the key was written with escapes
        given = params["arguments"]
        return Message(message_id, method, params, given if isinstance(given, dict) else encode(given))
    return Message(message_id, method, params, arguments)


def _raw_arguments(raw: bytes) -> bytes | None:
    if _ARGUMENTS not in raw:
        return None
    try:
        params = _outline.decode(raw).params
    except (ValueError, RecursionError):
        return None
    found = bytes(params.arguments) if params is not None else b""
    return found or None


def _strict(raw: bytes) -> Any:
    """Parse strict JSON after counting values on the raw bytes, so that parsing time is bounded."""
    if len(raw) > MCP_VALUES and _values(raw) > MCP_VALUES and _values(_STRING.sub(b"", raw)) > MCP_VALUES:
        raise Unreadable(INVALID_REQUEST, f"Invalid request: more than {MCP_VALUES} values")
    try:
        return jiter.from_json(raw, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        message_id = _id_beside_halves(raw)
        raise Unreadable(PARSE_ERROR, "Parse error: not one strict JSON value", message_id) from error


def _id_beside_halves(raw: bytes) -> Id | None:
    """The id of a request whose only fault are lone surrogates: clients forward what a model truncated."""
    whole, count = _HALF.subn(rb"\\ufffd", raw)
    if not count:
        return None
    try:
        data = jiter.from_json(whole, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        return None
    given = data.get("id") if type(data) is dict else None
    return given if is_id(given) else None


def _values(raw: bytes) -> int:
    """Upper bound of the number of values, unless strings contain such characters."""
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def _around(raw: bytes, arguments: bytes) -> Any:
    """Parse the message without its arguments: errors in those are for the model, not for the client."""
    # The same bytes may occur elsewhere in the message: each candidate is verified by parsing the rest.
    place = raw.index(_ARGUMENTS) + len(_ARGUMENTS)
    for _ in range(_PLACES):
        place = raw.find(arguments, place)
        if place < 0:
            break
        data = _strict(raw[:place] + _ELSEWHERE + raw[place + len(arguments) :])
        params = data.get("params") if type(data) is dict else None
        if type(params) is not dict or params.get("arguments") == 0:
            return data
        place += 1  # the same bytes occurred earlier, outside the arguments
    raise Unreadable(PARSE_ERROR, "Parse error: the arguments cannot be located")


def _read_id(data: dict[str, Any]) -> Id | None:
    if "id" not in data:
        return None
    given: Id = data["id"]
    if not is_id(given):
        raise Unreadable(INVALID_REQUEST, "Invalid request: id must be text or an integer")
    return given


def is_id(given: object) -> TypeGuard[Id]:
    """Whether it is a string or 64-bit integer that is short enough to be echoed."""
    if type(given) is str:
        return len(given) <= MCP_ID_CHARS
    return type(given) is int and -_WIDEST_ID <= given < _WIDEST_ID


def answer(message_id: Id, result: bytes) -> bytes:
    """A response with an encoded result."""
    return b'{"jsonrpc":"2.0","id":' + encode(message_id) + b',"result":' + result + b"}"


def refusal(message_id: Id | None, error: ProtocolError) -> bytes:
    """An error response."""
    return encode({"jsonrpc": "2.0", "id": message_id, "error": error.to_dict()})


def notification(method: str, params: dict[str, Any] | None = None) -> bytes:
    """A notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    return encode(message if params is None else {**message, "params": params})


def is_notification(frame: bytes) -> bool:
    """Whether a frame of ours is a notification, which may be dropped under backpressure."""
    return frame.startswith(_NOTIFICATION)


def request(message_id: Id, method: str, params: dict[str, Any]) -> bytes:
    """A request to the peer."""
    return encode({"jsonrpc": "2.0", "id": message_id, "method": method, "params": params})
