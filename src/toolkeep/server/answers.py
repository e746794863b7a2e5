"""What goes out: a status, headers and bytes. JSON is written once, here."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import orjson

Header = tuple[bytes, bytes]

JSON_TYPE: Final = b"application/json"
PROBLEM_TYPE: Final = b"application/problem+json"
STEADY: Final[tuple[Header, ...]] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
"""With every answer: nobody between us and the client keeps one, and no browser guesses what it is."""

_encode: Final = msgspec.json.Encoder().encode


class Answer(msgspec.Struct, frozen=True):
    """One whole response."""

    status: int
    body: bytes = b""
    content_type: bytes = JSON_TYPE
    headers: tuple[Header, ...] = ()

    def head(self) -> list[Header]:
        """Every header of it."""
        length = (b"content-length", b"%d" % len(self.body))
        kind = ((b"content-type", self.content_type),) if self.body else ()
        return [*kind, length, *STEADY, *self.headers]


def json_bytes(data: Any) -> bytes:
    """Data as JSON; integers of any size keep their digits."""
    try:
        return orjson.dumps(data, default=_plain)
    except TypeError:
        return json.dumps(msgspec.to_builtins(data), ensure_ascii=False).encode("utf-8", "backslashreplace")


def _plain(data: Any) -> Any:
    return orjson.Fragment(_encode(data)) if isinstance(data, msgspec.Struct) else msgspec.to_builtins(data)


def answer(data: Any, status: int = 200, headers: Iterable[Header] = ()) -> Answer:
    """An answer in JSON."""
    return Answer(status, json_bytes(data), JSON_TYPE, tuple(headers))


def tag_of(*parts: str) -> str:
    """A strong entity tag for what these say."""
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
    return f'"{digest[:32]}"'


def tagged(data: Any, wanted: str, tag: str = "") -> Answer:
    """An answer with its entity tag; 304 where the client has it already (`wanted` is its If-None-Match)."""
    body = json_bytes(data)
    tag = tag or f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = ((b"etag", tag.encode()),)
    if names_tag(wanted, tag):
        return Answer(304, b"", JSON_TYPE, headers)
    return Answer(200, body, JSON_TYPE, headers)


def names_tag(condition: str, tag: str) -> bool:
    """Whether If-Match or If-None-Match names a tag; `*` names any."""
    named = [one.strip().removeprefix("W/") for one in condition.split(",")]
    return tag in named or "*" in named
