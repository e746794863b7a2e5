"""A provider's response as plain data, from a dict, an SDK object, or JSON text, which is parsed strictly."""

from collections.abc import Callable
from typing import Any

from toolkeep.errors import ResponseUnreadable
from toolkeep.limits import RESPONSE_BYTES
from toolkeep.validation.parse import NotStrictJson, as_bytes, parse_json_fully

_DEPTH = 200
"""The nesting at which the parser gives up anyway."""


def data_of(given: Any, provider: str) -> dict[str, Any]:
    """The response, or one event of a stream, as a dict; raises `ResponseUnreadable`."""
    if isinstance(given, (str, bytes, bytearray, memoryview)):
        given = _parsed(as_bytes(given if not isinstance(given, str) else str(given)), provider)
    elif not isinstance(given, dict) and callable(dump := getattr(given, "model_dump", None)):
        given = dump(by_alias=True, warnings=False)
    if not isinstance(given, dict):
        raise ResponseUnreadable(provider, f"a {type(given).__name__} is not a response")
    return given


def _parsed(raw: bytes, provider: str) -> Any:
    if len(raw) > RESPONSE_BYTES:
        raise ResponseUnreadable(provider, f"it has more than {RESPONSE_BYTES} bytes")
    try:
        return parse_json_fully(raw, depth=_DEPTH)
    except NotStrictJson as error:
        raise ResponseUnreadable(provider, f"it is not JSON: {error.reason}") from error


_ITEMS = (list, tuple)


def missing_field(**kinds: type) -> Callable[[dict[str, Any]], str]:
    """A function that names the first of these fields that a response lacks, or has with another type."""

    def missing(response: dict[str, Any]) -> str:
        for name, kind in kinds.items():
            if name not in response or not isinstance(response[name], _ITEMS if kind is list else kind):
                return name
        return ""

    return missing


def inside(data: Any, *keys: str) -> dict[str, Any]:
    """The object at a path of keys; empty if there is none."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def items(data: Any, key: str) -> list[dict[str, Any]]:
    """The objects of the list under a key."""
    found = data.get(key) if isinstance(data, dict) else None
    return [item for item in found if isinstance(item, dict)] if isinstance(found, (list, tuple)) else []


def first(data: Any, key: str) -> dict[str, Any]:
    """The first object of the list under a key."""
    found = items(data, key)
    return found[0] if found else {}


def either(data: dict[str, Any], *keys: str) -> Any:
    """The value under the first of several spellings."""
    return next((data[key] for key in keys if data.get(key) is not None), None)


def word(value: Any) -> str:
    """A fixed word such as a stop reason; SDKs use enums."""
    value = getattr(value, "value", value)
    return value if isinstance(value, str) else ""
