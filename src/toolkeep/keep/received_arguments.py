"""The arguments of a call that did not pass validation, as they may be kept beside the log (AUD-5).

Comes in: whatever a caller sent. Goes out: data of a bounded size, without what may be secret.
"""

from typing import Any, Final

import msgspec
import orjson

from toolkeep.calls import RegisteredTool, Unreadable
from toolkeep.limits import BODY_ARGUMENT_BYTES, KIB
from toolkeep.text.display import echo_name, excerpt
from toolkeep.validation.parse import NotStrictJson, Snapshot, as_bytes
from toolkeep.validation.secret_values import described

_DEPTH: Final = 64
"""As deep as valid arguments may be."""
_TEXT_CHARS: Final = 2 * KIB
"""Characters of arguments that are no JSON."""


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """Refused arguments, as they are kept."""

    value: Any = None
    is_whole: bool = False
    """Whether they are exactly what the caller sent."""


def received(tool: RegisteredTool | None, arguments: object) -> Received | None:
    """What may be kept of refused arguments; None if there is nothing to keep."""
    if arguments is None or isinstance(arguments, Unreadable):
        return None
    # Of an unknown tool nothing says what is secret: a wrong name may be that of a tool with secrets.
    may_be_secret = tool is None or tool.arguments.secrecy.has_secrets
    if isinstance(arguments, (str, bytes, bytearray, memoryview)):
        text = as_bytes(arguments)
        if len(text) > BODY_ARGUMENT_BYTES:
            return Received(value=f"(text, {len(text):,} bytes)")
        try:
            arguments = orjson.loads(text)
        except ValueError:
            if may_be_secret:
                return Received(value=f"(text, {len(text):,} bytes)")
            return Received(value=excerpt(text.decode("utf-8", "replace"), _TEXT_CHARS))
    try:
        copied = Snapshot(arguments, depth=_DEPTH, values=BODY_ARGUMENT_BYTES)
    except NotStrictJson:
        return Received(value=described(arguments))
    value = copied.value
    if copied.values + copied.chars > BODY_ARGUMENT_BYTES:
        return Received(value=described(value))
    if not may_be_secret:
        return Received(value=value, is_whole=True)
    if tool is not None:
        return Received(value=tool.arguments.secrecy.outline(value))
    if isinstance(value, dict):
        return Received(value={echo_name(name): described(one) for name, one in value.items()})
    return Received(value=described(value))
