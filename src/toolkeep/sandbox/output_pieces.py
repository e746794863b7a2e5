"""Streamed output of a worker before its reply: counted, bounded, hostile.

The reply contains all pieces again, and only the reply counts.
"""

from collections.abc import Callable
from typing import Any

from toolkeep.limits import OUTPUT_PIECES
from toolkeep.sandbox.frames import FrameRefused

OutputListener = Callable[[Any], None]


class OutputPieces:
    """Streamed output of one worker."""

    def __init__(self, listener: OutputListener | None, most: int) -> None:
        """`most` bytes may be streamed in total."""
        self._listener = listener
        self._most = most
        self._count = self._bytes = 0

    def accept(self, said: dict[str, Any], size: int) -> None:
        """Forward one piece; raises FrameRefused if it is too many, too long, or malformed."""
        self._count += 1
        self._bytes += size
        if self._count > OUTPUT_PIECES:
            raise FrameRefused(f"it tells more than {OUTPUT_PIECES} pieces")
        if self._bytes > self._most:
            raise FrameRefused(f"it tells more than {self._most} bytes")
        if said.keys() != {"piece"}:
            raise FrameRefused("it tells a piece that is none")
        if self._listener is not None:
            self._listener(said["piece"])
