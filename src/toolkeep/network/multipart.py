"""Encodes `multipart/form-data` bodies (RFC 7578), files included.

Input: an object of fields, and how those that are not plain text are encoded. Output: bytes that no field can
break out of: the boundary is random, drawn last, and occurs in no part; field names are escaped as browsers
do; file names are sanitized. Values that cannot be encoded raise `ArgumentUnfit`.
"""

import base64
import binascii
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from toolkeep.network.parameter_styles import ArgumentUnfit
from toolkeep.text.display import echo, echo_name

MULTIPART: Final = "multipart/form-data"
PartKind = Literal["text", "json", "file"]
MEDIA_TYPE: Final = re.compile(r"[a-z]{1,20}/[a-z0-9][a-z0-9!#$&^_.+-]{0,99}")
_KEYS: Final = frozenset({"kind", "content_type", "whole"})
_FILE_NAME_CHARS: Final = 128
"""Characters of a file name that are sent. File systems take 255 bytes, and a letter may have two."""
_NOT_IN_NAMES: Final = re.compile(r"[^\w .()+,@=-]")
_FILE_KEYS: Final = frozenset({"content", "text", "file_name"})


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """How one field is encoded."""

    kind: PartKind = "text"
    content_type: str = ""
    """Of a file, or of text if the server wants it stated."""
    whole: bool = False
    """Whether a list is one part instead of one per item."""

    @classmethod
    def read(cls, data: Any) -> "Part":
        """Parse an object with kind, content_type and whole; ValueError says what is wrong."""
        if (
            not isinstance(data, Mapping)
            or set(data) - _KEYS
            or data.get("kind", "text") not in get_args(PartKind)
        ):
            raise ValueError("has a field of its body that is not an object with kind, content_type, whole")
        content_type, whole = data.get("content_type", ""), data.get("whole", False)
        if not isinstance(content_type, str) or (content_type and not MEDIA_TYPE.fullmatch(content_type)):
            raise ValueError(f"has a field of its body whose content_type cannot be: {echo(content_type)}")
        if not isinstance(whole, bool):
            raise ValueError("has a field of its body with a whole that is not a boolean")
        return cls(kind=data.get("kind", "text"), content_type=content_type, whole=whole)


class Written(msgspec.Struct, frozen=True):
    """A body and its content type."""

    body: bytes
    content_type: str


def write_multipart(fields: Any, parts: Mapping[str, Part]) -> Written:
    """Encode the fields of an object."""
    if not isinstance(fields, dict):
        raise ArgumentUnfit("the body must be an object")
    written = [
        _head(name, part, value) + b"\r\n\r\n" + _content(name, part, value)
        for name, given in fields.items()
        for part, value in _values(given, parts.get(name))
    ]
    # Drawn after all parts are encoded: a part cannot contain a boundary that did not exist.
    boundary = _boundary(written)
    between = b"--" + boundary + b"\r\n"
    body = b"".join(between + part + b"\r\n" for part in written) + b"--" + boundary + b"--\r\n"
    return Written(body, f"{MULTIPART}; boundary={boundary.decode()}")


def file_bytes(value: Any, name: str) -> bytes:
    """Bytes of a file argument: `content` in base64, or `text` as is."""
    # A path is not accepted here: the host would read a file that policy never checked.
    if not isinstance(value, dict) or set(value) - _FILE_KEYS or ("content" in value) == ("text" in value):
        raise ArgumentUnfit(f"'{echo_name(name)}' is a file: give either content (base64) or text")
    given = value.get("content", value.get("text"))
    if not isinstance(given, str):
        raise ArgumentUnfit(f"'{echo_name(name)}' must have its content or text as a text")
    if "text" in value:
        return _encoded(given, name)
    try:
        return base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raise ArgumentUnfit(f"'{echo_name(name)}' has content that is not base64") from None


def clean_file_name(name: Any) -> str:
    """A file name without folders, control characters or other special characters."""
    # Both separators: the server may run on Windows, where `..\..\x` is a path.
    last = re.split(r"[/\\]", name)[-1] if isinstance(name, str) else ""
    return _NOT_IN_NAMES.sub("_", last).strip(". ")[:_FILE_NAME_CHARS].strip(". ") or "file"


def _values(given: Any, stated: Part | None) -> Iterator[tuple[Part, Any]]:
    """Parts of a field: none for null, one per list item unless `whole`."""
    is_list = isinstance(given, list) and not (stated and stated.whole)
    for value in given if is_list else [given]:
        if value is None:
            continue
        usual = Part(kind="json") if isinstance(value, (dict, list)) else Part()
        yield stated or usual, value


def _head(name: str, part: Part, value: Any) -> bytes:
    line = f'Content-Disposition: form-data; name="{_escaped(name)}"'
    if part.kind == "file":
        chosen = value.get("file_name") if isinstance(value, dict) else None
        line += f'; filename="{_escaped(clean_file_name(chosen))}"'
    kind = part.content_type or {"file": "application/octet-stream", "json": "application/json"}.get(
        part.kind
    )
    return _encoded(f"{line}\r\nContent-Type: {kind}" if kind else line, name)


def _content(name: str, part: Part, value: Any) -> bytes:
    if part.kind == "file":
        return file_bytes(value, name)
    if part.kind == "json":
        return _encoded(json.dumps(value, ensure_ascii=False, separators=(",", ":")), name)
    if isinstance(value, str):
        return _encoded(value, name)
    if isinstance(value, (bool, int, float)):
        return json.dumps(value).encode()
    raise ArgumentUnfit(f"'{echo_name(name)}' must be a plain value there")


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ArgumentUnfit(f"'{echo_name(name)}' holds characters that cannot be sent") from None


def _escaped(name: str) -> str:
    """A name between quotes, percent-encoded as HTML forms do. A quote or CRLF would end the header."""
    return re.sub(r'[\x00-\x1f\x7f"]', lambda char: f"%{ord(char[0]):02X}", name)


def _boundary(written: list[bytes]) -> bytes:
    """A random boundary that occurs in no part; whoever wrote the parts could not guess it."""
    while True:
        boundary = secrets.token_hex(16).encode()
        if not any(boundary in part for part in written):
            return boundary
