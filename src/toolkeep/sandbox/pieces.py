"""Pieces of its output that a worker tells before it answers: measured, counted, and hostile.

The answer has them all again, and only that counts.
"""

from collections.abc import Callable
from typing import Any

from toolkeep.limits import OUTPUT_PIECES
from toolkeep.sandbox.frames import FrameRefused

OutputListener = Callable[[Any], None]


class PiecesHeard:
    """What one worker has told so far."""

    def __init__(self, listener: OutputListener | None, most: int) -> None:
        """`most` bytes may be told in all."""
        self._listener = listener
        self._most = most
        self._count = self._bytes = 0

    def hear(self, said: dict[str, Any], size: int) -> None:
        """Hand one on; raises FrameRefused for one too many, one too long, or what is no piece."""
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
