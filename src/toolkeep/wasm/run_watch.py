"""Deadline and cancellation of one WASM run.

WASM code checks at every epoch tick; host functions that block check as often.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

TICK_SECONDS: Final = 0.01
"""Latency of stopping a run."""


class Watch:
    """Says when a run must end; `stop` ends it at the next tick."""

    __slots__ = ("_deadline", "_is_given_up", "_is_stopped")

    def __init__(self, seconds: float, is_given_up: Callable[[], bool]) -> None:
        self._deadline = time.monotonic() + seconds
        self._is_given_up = is_given_up
        self._is_stopped = False

    @property
    def is_over(self) -> bool:
        """Whether the run must end now."""
        return self._is_stopped or self._is_given_up() or time.monotonic() >= self._deadline

    def stop(self) -> None:
        """End the run at its next tick."""
        self._is_stopped = True

    def pause(self, seconds: float) -> None:
        """Sleep, unless the run is over first."""
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0 and not self.is_over:
            time.sleep(min(rest, TICK_SECONDS))


class _OfThread(threading.local):
    """The watch of the run in this thread: a run has its thread to itself."""

    watch: Watch | None = None


of_thread: Final = _OfThread()
