"""Progress frames of a worker: counted, bounded, and escaped for display (EXE-4, SBX-2).

Hostile input. A frame that our own guest code would never send ends the call.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

from toolkeep.limits import PROGRESS_BYTES, PROGRESS_FRAMES
from toolkeep.sandbox.frames import FrameRefused
from toolkeep.text.display import visible

Listener = Callable[[float, float | None, str], None]

_LARGEST: Final = sys.float_info.max


def nobody(done: float, total: float | None, message: str) -> None:
    """A progress listener that ignores everything."""


class ProgressFrames:
    """Progress of one worker."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._count = 0

    def accept(self, said: dict[str, Any], size: int) -> None:
        """Forward one report; raises FrameRefused if it is too long, too many, or malformed."""
        self._count += 1
        if self._count > PROGRESS_FRAMES:
            raise FrameRefused(f"it tells progress more than {PROGRESS_FRAMES} times")
        if size > PROGRESS_BYTES:
            raise FrameRefused(f"it tells progress in more than {PROGRESS_BYTES} bytes")
        match said:
            case {"progress": [done, total, str(message)], **rest} if not rest and _is_progress(done, total):
                # Escaped: control and bidi characters could forge lines on the operator's terminal.
                self._listener(done, total, visible(message))
            case _:
                raise FrameRefused("it tells progress that is none")


def _is_progress(done: object, total: object) -> bool:
    return _is_number(done) and (total is None or _is_number(total))


def _is_number(value: object) -> bool:
    """Whether it is a finite number; comparisons with NaN are false."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST
