"""The output of a tool that yields it: each piece is handed on as it comes, all together are the output.

Text is joined, and so are bytes, which are not handed on; anything else is an array (EXE-8). A piece is data
and shares nothing with what the tool yielded. What is more than the caller gets is not handed on either.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import jiter

from toolkeep.calls import RecordedCall
from toolkeep.definitions.vocabulary import ResultType
from toolkeep.errors import Code
from toolkeep.execution.runner import RunRefused
from toolkeep.limits import OUTPUT_CAP_BYTES, OUTPUT_PIECES, OUTPUT_PIECES_MOST
from toolkeep.plain import NotData, TooMuch, json_body

log = logging.getLogger("toolkeep.execution")


class Pieces:
    """What one call has given so far."""

    def __init__(self, call: RecordedCall, tell: Callable[[Any], object] | None) -> None:
        self._call = call
        self._tell = tell
        self._given: list[Any] = []
        self._bytes = 0

    def add(self, piece: Any) -> None:
        """Take one more. Raises `RunRefused` for one that is no data, or one too many."""
        if self._call.tool.definition.gives_bytes and isinstance(piece, (bytes, bytearray, memoryview)):
            self._grow(len(piece))
            self._given.append(bytes(piece))
            return
        try:
            body = json_body(piece)
        except NotData as error:
            message = f"Tool '{self._call.tool.name}' gave something that is not JSON: {error}"
            raise RunRefused(Code.OUTPUT_INVALID, message) from error
        except TooMuch as most:
            message = f"Tool '{self._call.tool.name}' gave more than {most}"
            raise RunRefused(Code.OUTPUT_TOO_BIG, message) from most
        self._grow(len(body))
        self._given.append(jiter.from_json(body))
        if self._tell and self._bytes <= self._call.output_bytes and len(self._given) <= OUTPUT_PIECES:
            self._tell(jiter.from_json(body))

    def whole(self) -> Any:
        """The output."""
        return joined(self._call, self._given)

    def _grow(self, count: int) -> None:
        self._bytes += count
        if self._bytes > OUTPUT_CAP_BYTES or len(self._given) >= OUTPUT_PIECES_MOST:
            most = f"{OUTPUT_CAP_BYTES} bytes, or than {OUTPUT_PIECES_MOST} pieces"
            message = f"Tool '{self._call.tool.name}' gave more than {most}"
            raise RunRefused(Code.OUTPUT_TOO_BIG, message)


def joined(call: RecordedCall, pieces: Sequence[Any]) -> Any:
    """All pieces as one output; what the definition says about an array, or nothing at all, decides."""
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
    """Who hears of the pieces of a call, if anyone; one that fails does not fail the tool."""
    listener = call.request.on_output
    if listener is None:
        return None

    def tell(piece: Any) -> None:
        try:
            listener(piece)
        except Exception as error:  # noqa: BLE001 -- the tool has nothing to do with it
            log.warning("a listener for output failed", extra={"error_type": type(error).__name__})

    return tell
