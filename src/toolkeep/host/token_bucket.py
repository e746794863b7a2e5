"""Token-bucket rate limiter."""

import time
from collections.abc import Callable


class TokenBucket:
    """One token bucket; a rate of zero means unlimited."""

    __slots__ = ("_at", "_burst", "_clock", "_left", "_rate")

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`rate` in tokens per second, `burst` is the bucket size."""
        self._rate = rate
        self._burst = self._left = burst
        self._clock = clock
        self._at = clock()

    def take(self) -> bool:
        """Take a token; False if the bucket is empty (rate limited)."""
        if not self._rate:
            return True
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
