"""JSON-RPC as MCP speaks it: one message in bytes, a `Message` or a `ProtocolError` out, and answers back.

Whatever comes in is hostile. It is strict JSON without duplicate keys. Only the arguments of a call are left
as the bytes that they came in: the door of validation reads those itself, and says what is wrong with them in
words that a model can use.
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
"""Ours: too many requests at once, or too fast."""
NOT_FOUND_BEFORE_2026: Final = -32002
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022

Id = int | str
encode = msgspec.json.encode

_ARGUMENTS: Final = b'"arguments"'
_ELSEWHERE: Final = b"0"
_PLACES: Final = 8
"""How many places are looked at for the arguments, where the same bytes stand in several."""
_WIDEST_ID: Final = 2**63
_NOTIFICATION: Final = b'{"jsonrpc":"2.0","method":'
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""Also one that does not end: each byte is looked at once, whatever it is."""
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


class ProtocolError(Exception):
    """What is answered with a JSON-RPC error."""

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
    """A frame that is no message; `id` is that of the request it was meant to be, where that can be told."""

    def __init__(self, code: int, message: str, message_id: Id | None = None) -> None:
        super().__init__(code, message)
        self.id = message_id


class Message(msgspec.Struct, eq=False):
    """One request, notification or answer."""

    id: Id | None
    """None for a notification."""
    method: str
    """Empty for an answer."""
    params: dict[str, Any]
    arguments: bytes | dict[str, Any] | None = None
    """`params.arguments`, as it came."""
    result: Any = None
    error: Any = None

    @property
    def meta(self) -> dict[str, Any]:
        """`params._meta`; empty where it is no object."""
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}


class _Params(msgspec.Struct):
    arguments: msgspec.Raw = msgspec.Raw(b"")


class _Outline(msgspec.Struct):
    params: _Params | None = None


_outline = msgspec.json.Decoder(_Outline)


def read_message(raw: bytes) -> Message:
    """The message; raises `Unreadable`."""
    arguments = _raw_arguments(raw)
    data = _strict(raw) if arguments is None else _around(raw, arguments)
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
    if arguments is None and "arguments" in params:  # under a name that was written in another way
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
    if len(raw) > MCP_VALUES and _values(raw) > MCP_VALUES and _values(_STRING.sub(b"", raw)) > MCP_VALUES:
        raise Unreadable(INVALID_REQUEST, f"Invalid request: more than {MCP_VALUES} values")
    try:
        return jiter.from_json(raw, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        message_id = _id_beside_halves(raw)
        raise Unreadable(PARSE_ERROR, "Parse error: not one strict JSON value", message_id) from error


def _id_beside_halves(raw: bytes) -> Id | None:
    """The id of a request whose only fault are half characters: clients hand on what a model broke off."""
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
    """How many values there are at most, should no string hold such signs."""
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def _around(raw: bytes, arguments: bytes) -> Any:
    """The message without its arguments: what is wrong in those is told to the model, not to the client."""
    place = raw.index(_ARGUMENTS) + len(_ARGUMENTS)
    for _ in range(_PLACES):
        place = raw.find(arguments, place)
        if place < 0:
            break
        data = _strict(raw[:place] + _ELSEWHERE + raw[place + len(arguments) :])
        params = data.get("params") if type(data) is dict else None
        if type(params) is not dict or params.get("arguments") == 0:
            return data
        place += 1  # the same bytes stood elsewhere before
    raise Unreadable(PARSE_ERROR, "Parse error: the arguments cannot be told from the rest")


def _read_id(data: dict[str, Any]) -> Id | None:
    if "id" not in data:
        return None
    given: Id = data["id"]
    if not is_id(given):
        raise Unreadable(INVALID_REQUEST, "Invalid request: id must be text or an integer")
    return given


def is_id(given: object) -> TypeGuard[Id]:
    """Whether it is a text or an integer of a length that is worth repeating."""
    if type(given) is str:
        return len(given) <= MCP_ID_CHARS
    return type(given) is int and -_WIDEST_ID <= given < _WIDEST_ID


def answer(message_id: Id, result: bytes) -> bytes:
    """A response, its result encoded already."""
    return b'{"jsonrpc":"2.0","id":' + encode(message_id) + b',"result":' + result + b"}"


def refusal(message_id: Id | None, error: ProtocolError) -> bytes:
    """An error response."""
    return encode({"jsonrpc": "2.0", "id": message_id, "error": error.to_dict()})


def notification(method: str, params: dict[str, Any] | None = None) -> bytes:
    """A notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    return encode(message if params is None else {**message, "params": params})


def is_notification(frame: bytes) -> bool:
    """Whether a frame of ours is one: nobody waits for it, so it may be left out where there is no room."""
    return frame.startswith(_NOTIFICATION)


def request(message_id: Id, method: str, params: dict[str, Any]) -> bytes:
    """A request of ours to the client."""
    return encode({"jsonrpc": "2.0", "id": message_id, "method": method, "params": params})
