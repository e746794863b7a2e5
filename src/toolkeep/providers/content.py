"""Whether what a tool gave is content as MCP has it: what is none would break a client that checks."""

import binascii
import re
from typing import Any, Final

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]*")


def is_content(value: Any) -> bool:
    """Whether a value is a list of blocks."""
    return isinstance(value, list) and all(map(_is_block, value))


def _is_block(block: Any) -> bool:
    if not isinstance(block, dict) or not all(isinstance(block.get(key, {}), dict) for key in _ABOUT):
        return False
    match block:
        case {"type": "text", "text": str()}:
            return True
        case {"type": "image" | "audio", "data": str(data), "mimeType": str()}:
            return _is_base64(data)
        case {"type": "resource_link", "uri": str(uri), "name": str()}:
            return _is_uri(uri)
        case {"type": "resource", "resource": {"uri": str(uri), **held}}:
            return _is_uri(uri) and _is_held(held)
    return False


_ABOUT: Final = ("annotations", "_meta")


def _is_held(held: dict[Any, Any]) -> bool:
    """Whether a resource holds text, or bytes."""
    match held:
        case {"text": str()}:
            return "blob" not in held
        case {"blob": str(blob)}:
            return _is_base64(blob)
    return False


def _is_uri(text: str) -> bool:
    """Whether it is one by its signs: a scheme, and nothing that is not seen."""
    return _URI.fullmatch(text) is not None


def _is_base64(text: str) -> bool:
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return False
    return True
