"""Header parameters: body values mirrored into HTTP headers, `Mcp-Name` and `Mcp-Param-*` (2026-07-28).

A value that is no valid header value is encoded as `=?base64?…?=`.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

PARAM_PREFIX: Final = "Mcp-Param-"
ANNOTATION: Final = "x-mcp-header"
_ENCODED: Final = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CARRIED: Final = ("string", "integer", "boolean")
_DEPTH: Final = 20
"""Nesting to which annotations are searched: deeper than ordinary schemas, and far from Python's recursion
limit."""


def annotated(
    schema: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """Schema properties with a mirrored header: path, header name, type."""
    properties = schema.get("properties")
    # Bounded: the schema comes from a hostile server, and recursion follows its nesting.
    if not isinstance(properties, dict) or len(path) >= _DEPTH:
        return
    for name, inner in properties.items():
        if isinstance(inner, dict):
            token = inner.get(ANNOTATION)
            if isinstance(token, str) and _TOKEN.fullmatch(token):
                yield (*path, name), token, inner.get("type")
            yield from annotated(inner, (*path, name))


def wrong_with_annotations(schema: Any) -> str:
    """What is wrong with a schema's header annotations; empty if nothing is."""
    names: set[str] = set()
    for token, kind in _annotations(schema, _DEPTH):
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            return f"asks for a header by {ANNOTATION} that is not a header name"
        if kind not in _CARRIED:
            return f"asks by {ANNOTATION} for what no header carries: only {', '.join(_CARRIED)}"
        # Header names are case-insensitive: two arguments in one header could not be told apart by a proxy.
        if token.lower() in names:
            return f"asks by {ANNOTATION} for the same header twice"
        names.add(token.lower())
    return ""


def _annotations(schema: Any, depth: int) -> Iterator[tuple[Any, Any]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not depth:
        return
    for inner in properties.values():
        if isinstance(inner, dict):
            if ANNOTATION in inner:
                yield inner[ANNOTATION], inner.get("type")
            yield from _annotations(inner, depth - 1)


def mirrored_headers(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, str]:
    """Headers that mirror arguments; null and missing arguments have none."""
    found = {token: rendered(at(arguments, path)) for path, token, _ in annotated(schema)}
    return {f"{PARAM_PREFIX}{token}": header_value(text) for token, text in found.items() if text is not None}


def at(arguments: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """The argument at a path, or None."""
    value: Any = arguments
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def rendered(value: Any) -> str | None:
    """An argument as text; None for types that no header carries."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (str, int, float)) else None


def header_value(text: str) -> str:
    """Encode a string as a header value.

    Text with line breaks or non-ASCII characters becomes base64 (header injection).
    """
    is_plain = text.isascii() and (text.isprintable() or not text) and text == text.strip()
    if is_plain and not _ENCODED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def decoded(value: str) -> str | None:
    """Decode a header value; None if it is malformed."""
    found = _ENCODED.fullmatch(value)
    if found is None:
        return value if value.isascii() and value.isprintable() else None
    try:
        return base64.b64decode(found.group(1), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
