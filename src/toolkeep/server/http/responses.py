"""HTTP responses: status, headers, body; JSON encoding and entity tags."""

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

import msgspec
import orjson

Header = tuple[bytes, bytes]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON_TYPE: Final = b"application/json"
PROBLEM_TYPE: Final = b"application/problem+json"
COMMON_HEADERS: Final[tuple[Header, ...]] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
"""Sent with every response: no cache may store it, and no browser may sniff its type (JSON run as script)."""

_encode: Final = msgspec.json.Encoder().encode


class Response(msgspec.Struct, frozen=True):
    """One complete response."""

    status: int
    body: bytes = b""
    content_type: bytes = JSON_TYPE
    headers: tuple[Header, ...] = ()

    def head(self) -> list[Header]:
        """All headers."""
        length = (b"content-length", b"%d" % len(self.body))
        kind = ((b"content-type", self.content_type),) if self.body else ()
        return [*kind, length, *COMMON_HEADERS, *self.headers]


async def send_response(send: Send, response: Response) -> None:
    """Send one whole response."""
    await send({"type": "http.response.start", "status": response.status, "headers": response.head()})
    await send({"type": "http.response.body", "body": response.body})


def json_bytes(data: Any) -> bytes:
    """Encode data as JSON; integers of any size keep their digits."""
    try:
        return orjson.dumps(data, default=_plain)
    except TypeError:
        return json.dumps(msgspec.to_builtins(data), ensure_ascii=False).encode("utf-8", "backslashreplace")


def _plain(data: Any) -> Any:
    return orjson.Fragment(_encode(data)) if isinstance(data, msgspec.Struct) else msgspec.to_builtins(data)


def json_response(data: Any, status: int = 200, headers: Iterable[Header] = ()) -> Response:
    """A JSON response."""
    return Response(status, json_bytes(data), JSON_TYPE, tuple(headers))


def tag_of(*parts: str) -> str:
    """A strong entity tag from these parts."""
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
    return f'"{digest[:32]}"'


def tagged(data: Any, wanted: str, tag: str = "") -> Response:
    """A response with an entity tag; 304 if the client has it (`wanted` is its If-None-Match)."""
    body = json_bytes(data)
    tag = tag or f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = ((b"etag", tag.encode()),)
    if names_tag(wanted, tag):
        return Response(304, b"", JSON_TYPE, headers)
    return Response(200, body, JSON_TYPE, headers)


def names_tag(condition: str, tag: str) -> bool:
    """Whether If-Match or If-None-Match contains a tag; `*` matches any."""
    named = [one.strip().removeprefix("W/") for one in condition.split(",")]
    return tag in named or "*" in named
