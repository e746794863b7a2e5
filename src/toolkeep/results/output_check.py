"""Output validation (VAL-9): JSON or bytes, within the hard cap, satisfying the output schema.

The result shares no object with what the tool returned, so the tool cannot change it after it was hashed.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolkeep.calls import CheckedOutput, RawOutput, Refusal, refuse
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import Normalization
from toolkeep.errors import Code
from toolkeep.json_values.jsonable import NotData, TooMuch, to_json_data
from toolkeep.json_values.reading import read_canonical
from toolkeep.limits import LARGE_OUTPUT, OUTPUT_CAP_BYTES

_CUSTOM: Final = Normalization.CUSTOM  # looked up once: every call asks

Normalizers = Mapping[str, Callable[[Any], Any]]
"""Custom normalizers by tool name: they map equal results to the same JSON value."""


def check_output(
    raw: RawOutput, normalizers: Normalizers, *, is_final: bool = True
) -> CheckedOutput | Refusal:
    """Validate and hash an output; the output schema applies to the final one only."""
    definition = raw.call.tool.definition
    found = _read(raw, normalizers, is_normalized=raw.is_cached)
    if type(found) is Refusal:
        return found
    value, body, unchanged = found
    schema = raw.call.tool.output
    if is_final and schema is not None:
        is_valid = schema.is_valid_output(value, len(body))
        if is_valid is None:
            message = f"Checking the output of tool '{definition.name}' would take too much work"
            return refuse(raw.call.request, Code.OUTPUT_TOO_BIG, message, "Ask for less.")
        if not is_valid:
            message = f"The output of tool '{definition.name}' does not satisfy its output schema"
            return refuse(
                raw.call.request, Code.OUTPUT_INVALID, message, "Tell the user that the tool is broken."
            )
    return CheckedOutput(
        raw=raw,
        value=value,
        body=body,
        hash=hashlib.sha256(body).hexdigest(),
        # A cached value was normalized before it was stored.
        unchanged=None if raw.is_cached else unchanged,
    )


def plain_output(raw: RawOutput) -> tuple[Any, bytes] | Refusal:
    """An output as JSON data or bytes, and its body, before it is normalized and checked."""
    found = _read(raw, {}, is_normalized=True)
    return found if type(found) is Refusal else found[:2]


def is_large(value: Any) -> bool:
    """Whether processing an output may block the event loop noticeably, so that a thread should do it."""
    count, waiting = 0, [value]
    while waiting:
        here = waiting.pop()
        count += 1
        if isinstance(here, (str, bytes)):
            count += len(here) // _CHARS_PER_VALUE
        elif isinstance(here, (dict, list, tuple)):
            if len(here) > LARGE_OUTPUT:
                return True
            waiting.extend(here.values() if isinstance(here, dict) else here)
        if count + len(waiting) > LARGE_OUTPUT:
            return True
    return False


_CHARS_PER_VALUE: Final = 100


class _Unfit(Exception):
    """The output does not match the definition."""


def _read(
    raw: RawOutput, normalizers: Normalizers, *, is_normalized: bool
) -> tuple[Any, bytes, Any] | Refusal:
    definition = raw.call.tool.definition
    try:
        return _data(raw.value, definition, normalizers, is_normalized=is_normalized)
    except _Unfit as unfit:
        return refuse(
            raw.call.request, Code.OUTPUT_INVALID, str(unfit), "Tell the user that the tool is broken."
        )
    except TooMuch as most:
        message = f"Tool '{definition.name}' returned more than {most}"
        return refuse(raw.call.request, Code.OUTPUT_TOO_BIG, message, "Ask for less.")


def _data(
    value: Any, definition: ToolDefinition, normalizers: Normalizers, *, is_normalized: bool
) -> tuple[Any, bytes, Any]:
    """The normalized value, its canonical form, and the value as the tool gave it, as JSON data."""
    if definition.gives_bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise _Unfit(f"Tool '{definition.name}' returned {type(value).__name__} instead of bytes")
        body = bytes(value)
        if len(body) > OUTPUT_CAP_BYTES:
            raise TooMuch(f"{OUTPUT_CAP_BYTES} bytes")
        return body, body, body
    # A cached value was normalized before it was stored; twice could change it.
    if definition.normalization is _CUSTOM and not is_normalized:
        return _customized_data(value, definition.name, normalizers)
    return _json_data(value, definition.name)


def _json_data(value: Any, name: str) -> tuple[Any, bytes, Any]:
    try:
        data, body = to_json_data(value)
    except NotData as error:
        raise _Unfit(f"Tool '{name}' returned something that is not JSON: {error}") from error
    # A string is immutable, so it is shared: it saves copying up to a hundred megabytes.
    return value if type(value) is str else read_canonical(body), body, data


def _customized_data(value: Any, name: str, normalizers: Normalizers) -> tuple[Any, bytes, Any]:
    try:
        # Before the normalizer, which may change the value in place.
        unchanged = to_json_data(value)[0]
    except (NotData, TooMuch):
        unchanged = None  # Only what the normalizer makes of it has to be JSON.
    normalized, body, _ = _json_data(_customized(value, name, normalizers), name)
    return normalized, body, unchanged


def _customized(value: Any, name: str, normalizers: Normalizers) -> Any:
    if name not in normalizers:
        raise _Unfit(f"Tool '{name}' has a normalization of its own, and none is registered")
    try:
        return normalizers[name](value)
    except Exception as error:
        raise _Unfit(f"The normalization of tool '{name}' failed") from error
