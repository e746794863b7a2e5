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

    def take(self, servers: int = 1) -> bool:
        """Take a token; False if the bucket is empty (rate limited).

        So many servers have an equal part of rate and bucket each.
        """
        if not self._rate:
            return True
        now = self._clock()
        most = max(1.0, self._burst / servers)
        self._left = min(most, self._left + (now - self._at) * self._rate / servers)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
