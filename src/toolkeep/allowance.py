"""So many in a second, and some at once after a pause: a bucket of tokens, which the clock fills."""

import time
from collections.abc import Callable


class Allowance:
    """What one caller may still do; a rate of zero allows anything."""

    __slots__ = ("_at", "_burst", "_clock", "_left", "_rate")

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`rate` is how many in a second, `burst` how many at once."""
        self._rate = rate
        self._burst = self._left = burst
        self._clock = clock
        self._at = clock()

    def take(self) -> bool:
        """Whether one more may come, which then counts."""
        if not self._rate:
            return True
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
