"""Watches over one run: until when it may go on, and whether anybody still wants it.

WASM code asks at every tick of the epoch; what waits inside a host function asks as often.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

TICK_SECONDS: Final = 0.01
"""How late a run may notice that it is over."""


class Watch:
    """Says when a run is over; `stop` ends it at once."""

    __slots__ = ("_deadline", "_is_given_up", "_is_stopped")

    def __init__(self, seconds: float, is_given_up: Callable[[], bool]) -> None:
        self._deadline = time.monotonic() + seconds
        self._is_given_up = is_given_up
        self._is_stopped = False

    @property
    def is_over(self) -> bool:
        """Whether the run has to end now."""
        return self._is_stopped or self._is_given_up() or time.monotonic() >= self._deadline

    def stop(self) -> None:
        """End the run at its next tick."""
        self._is_stopped = True

    def pause(self, seconds: float) -> None:
        """Let time pass, unless the run is over before."""
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0 and not self.is_over:
            time.sleep(min(rest, TICK_SECONDS))


class _OfThread(threading.local):
    """Which watch a host function belongs to: a run has its thread for itself."""

    watch: Watch | None = None


of_thread: Final = _OfThread()
