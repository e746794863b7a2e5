"""What a body says once more in headers: `Mcp-Name`, and arguments that a tool wants there (2026-07-28).

A value that a header cannot carry as it is comes as `=?base64?…?=`.
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


def annotated(
    schema: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """The properties of a schema that have a header: their path, its name, their type."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or len(path) >= _DEPTH:
        return
    for name, inner in properties.items():
        if isinstance(inner, dict):
            token = inner.get(ANNOTATION)
            if isinstance(token, str) and _TOKEN.fullmatch(token):
                yield (*path, name), token, inner.get("type")
            yield from annotated(inner, (*path, name))


def wrong_with_annotations(schema: Any) -> str:
    """What is wrong with the headers that a schema asks for; empty where nothing is."""
    names: set[str] = set()
    for token, kind in _annotations(schema, _DEPTH):
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            return f"asks for a header by {ANNOTATION} that is no name of one"
        if kind not in _CARRIED:
            return f"asks by {ANNOTATION} for what no header carries: only {', '.join(_CARRIED)}"
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


def mirrored(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers that repeat arguments; one that is null or missing has none."""
    found = {token: rendered(at(arguments, path)) for path, token, _ in annotated(schema)}
    return {f"{PARAM_PREFIX}{token}": header_value(text) for token, text in found.items() if text is not None}


def at(arguments: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """The argument at a path; None where there is none."""
    value: Any = arguments
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def rendered(value: Any) -> str | None:
    """An argument as a header says it; None for what none carries."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (str, int, float)) else None


def header_value(text: str) -> str:
    """A text as a header carries it."""
    is_plain = text.isascii() and (text.isprintable() or not text) and text == text.strip()
    if is_plain and not _ENCODED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def decoded(value: str) -> str | None:
    """What a header stands for; None where that cannot be told."""
    found = _ENCODED.fullmatch(value)
    if found is None:
        return value if value.isascii() and value.isprintable() else None
    try:
        return base64.b64decode(found.group(1), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
