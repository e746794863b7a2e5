"""Progress that a worker tells before it answers: measured, counted, and made safe to show (EXE-4, SBX-2).

All of it is hostile. What our own code in a worker would never send ends the call.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

from toolkeep.limits import PROGRESS_BYTES, PROGRESS_FRAMES
from toolkeep.sandbox.frames import FrameRefused
from toolkeep.wording import visible

Listener = Callable[[float, float | None, str], None]

_LARGEST: Final = sys.float_info.max


def nobody(done: float, total: float | None, message: str) -> None:
    """A listener that does not listen."""


class ProgressHeard:
    """What one worker has told so far."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._count = 0

    def hear(self, said: dict[str, Any], size: int) -> None:
        """Hand one on; raises FrameRefused for one that is too long, too many or no progress."""
        self._count += 1
        if self._count > PROGRESS_FRAMES:
            raise FrameRefused(f"it tells progress more than {PROGRESS_FRAMES} times")
        if size > PROGRESS_BYTES:
            raise FrameRefused(f"it tells progress in more than {PROGRESS_BYTES} bytes")
        match said:
            case {"progress": [done, total, str(message)], **rest} if not rest and _is_progress(done, total):
                self._listener(done, total, visible(message))
            case _:
                raise FrameRefused("it tells progress that is none")


def _is_progress(done: object, total: object) -> bool:
    return _is_number(done) and (total is None or _is_number(total))


def _is_number(value: object) -> bool:
    """Whether it is a finite number; a comparison is false for what is not a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST
