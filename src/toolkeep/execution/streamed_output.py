"""Streamed output of a generator tool: pieces are forwarded as they come, and joined into the output.

Strings are joined, and so are bytes, which are not forwarded; anything else becomes an array (EXE-8). A piece
is a copy that shares nothing with what the tool yielded. Pieces beyond the caller's output limit are not
forwarded.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import jiter

from toolkeep.calls import RecordedCall
from toolkeep.definitions.vocabulary import ResultType
from toolkeep.errors import Code
from toolkeep.execution.runner import RunRefused
from toolkeep.json_values.jsonable import NotData, TooMuch, to_json_body
from toolkeep.limits import OUTPUT_CAP_BYTES, OUTPUT_PIECES, OUTPUT_PIECES_MOST

log = logging.getLogger("toolkeep.execution")


class Pieces:
    """Output of one call so far."""

    def __init__(self, call: RecordedCall, tell: Callable[[Any], object] | None) -> None:
        self._call = call
        self._tell = tell
        self._given: list[Any] = []
        self._bytes = 0

    def add(self, piece: Any) -> None:
        """Add one piece. Raises `RunRefused` if it is not data, or one too many."""
        if self._call.tool.definition.gives_bytes and isinstance(piece, (bytes, bytearray, memoryview)):
            self._grow(len(piece))
            self._given.append(bytes(piece))
            return
        try:
            body = to_json_body(piece)
        except NotData as error:
            message = f"Tool '{self._call.tool.name}' returned something that is not JSON: {error}"
            raise RunRefused(Code.OUTPUT_INVALID, message) from error
        except TooMuch as most:
            message = f"Tool '{self._call.tool.name}' returned more than {most}"
            raise RunRefused(Code.OUTPUT_TOO_BIG, message) from most
        self._grow(len(body))
        # Re-parsed from JSON: the tool keeps no reference to what is returned, and cannot change it later.
        self._given.append(jiter.from_json(body))
        if self._tell and self._bytes <= self._call.output_bytes and len(self._given) <= OUTPUT_PIECES:
            self._tell(jiter.from_json(body))

    def whole(self) -> Any:
        """The joined output."""
        return joined(self._call, self._given)

    def _grow(self, count: int) -> None:
        self._bytes += count
        if self._bytes > OUTPUT_CAP_BYTES or len(self._given) >= OUTPUT_PIECES_MOST:
            most = f"{OUTPUT_CAP_BYTES} bytes, or than {OUTPUT_PIECES_MOST} pieces"
            message = f"Tool '{self._call.tool.name}' returned more than {most}"
            raise RunRefused(Code.OUTPUT_TOO_BIG, message)


def joined(call: RecordedCall, pieces: Sequence[Any]) -> Any:
    """All pieces as one output; the definition decides between text and array."""
    if call.tool.definition.gives_bytes:
        return b"".join(pieces) if all(isinstance(piece, bytes) for piece in pieces) else list(pieces)
    is_text = all(isinstance(piece, str) for piece in pieces) and not _is_array(call)
    return "".join(pieces) if is_text else list(pieces)


def _is_array(call: RecordedCall) -> bool:
    definition = call.tool.definition
    schema = definition.output_schema
    says_array = schema is not None and schema.get("type") == "array"
    return says_array or definition.result_type is ResultType.ARRAY


def listener_of(call: RecordedCall) -> Callable[[Any], None] | None:
    """Listener for the pieces of a call, if any; a failing one does not fail the tool."""
    listener = call.request.on_output
    if listener is None:
        return None

    def tell(piece: Any) -> None:
        try:
            listener(piece)
        except Exception as error:  # noqa: BLE001 -- the tool has nothing to do with it
            log.warning("a listener for output failed", extra={"error_type": type(error).__name__})

    return tell
