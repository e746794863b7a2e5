"""Rate and concurrency limits, for each token and for the whole server.

Requests beyond a limit are refused, not queued: a queue would let one token hold the memory of all.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from toolkeep.errors import Code
from toolkeep.host.token_bucket import TokenBucket
from toolkeep.limits import ServerLimits
from toolkeep.server.http.problem_details import RequestRefused

_REMEMBERED: Final = 10_000
"""Accounts before idle ones are dropped: as many as one keep may have tokens (`TOKENS`)."""


class _Account:
    """Usage of one token."""

    __slots__ = ("bucket", "in_flight")

    def __init__(self, bucket: TokenBucket) -> None:
        self.bucket = bucket
        self.in_flight = 0


class RateLimits:
    """Admits requests and counts those in flight."""

    def __init__(
        self,
        limits: ServerLimits,
        clock: Callable[[], float] = time.monotonic,
        *,
        servers: Callable[[], int] = lambda: 1,
    ) -> None:
        """So many servers have an equal part of the rate of each token."""
        self._limits = limits
        self._clock = clock
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._servers = servers
        self.in_flight = 0

    def enter(self, token_id: str) -> _Account:
        """Admit a request; raises if a limit is reached."""
        limits = self._limits
        if self.in_flight >= limits.in_flight:
            raise RequestRefused(Code.NOT_SERVING, "too many requests are under way", hint="try again soon")
        account = self._account(token_id)
        if account.in_flight >= limits.token_in_flight:
            raise RequestRefused(Code.RATE_LIMITED, "too many requests of this token are under way")
        if not account.bucket.take(self._servers()):
            raise RequestRefused(Code.RATE_LIMITED, "too many requests of this token in too short a time")
        account.in_flight += 1
        self.in_flight += 1
        return account

    def leave(self, account: _Account) -> None:
        """A request has ended."""
        account.in_flight -= 1
        self.in_flight -= 1

    def _account(self, token_id: str) -> _Account:
        found = self._accounts.get(token_id)
        if found is None:
            bucket = TokenBucket(self._limits.requests_per_second, self._limits.burst, self._clock)
            found = self._accounts[token_id] = _Account(bucket)
            if len(self._accounts) > _REMEMBERED:
                self._forget()
        return found

    def _forget(self) -> None:
        """Drop idle accounts, oldest first; dropping a busy one would reset its limit."""
        for token_id in [key for key, held in self._accounts.items() if not held.in_flight][
            : _REMEMBERED // 2
        ]:
            del self._accounts[token_id]
