"""How much one token, and all of them together, may ask at once; who asks for more is told so at once."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from toolkeep.allowance import Allowance
from toolkeep.errors import Code
from toolkeep.limits import ServerLimits
from toolkeep.server.problems import RequestRefused

_REMEMBERED: Final = 10_000


class _Account:
    """What one token uses."""

    __slots__ = ("allowance", "in_flight")

    def __init__(self, allowance: Allowance) -> None:
        self.allowance = allowance
        self.in_flight = 0


class Turnstile:
    """Lets requests in, and counts those that are inside."""

    def __init__(self, limits: ServerLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self.in_flight = 0

    def enter(self, token_id: str) -> _Account:
        """Let one request in; raises where there are too many."""
        limits = self._limits
        if self.in_flight >= limits.in_flight:
            raise RequestRefused(Code.NOT_SERVING, "too many requests are under way", hint="try again soon")
        account = self._account(token_id)
        if account.in_flight >= limits.token_in_flight:
            raise RequestRefused(Code.RATE_LIMITED, "too many requests of this token are under way")
        if not account.allowance.take():
            raise RequestRefused(Code.RATE_LIMITED, "too many requests of this token in too short a time")
        account.in_flight += 1
        self.in_flight += 1
        return account

    def leave(self, account: _Account) -> None:
        """One request is over."""
        account.in_flight -= 1
        self.in_flight -= 1

    def _account(self, token_id: str) -> _Account:
        found = self._accounts.get(token_id)
        if found is None:
            allowance = Allowance(self._limits.requests_per_second, self._limits.burst, self._clock)
            found = self._accounts[token_id] = _Account(allowance)
            if len(self._accounts) > _REMEMBERED:
                self._forget()
        return found

    def _forget(self) -> None:
        """Idle accounts go, oldest first: one that has requests under way is still needed."""
        for token_id in [key for key, held in self._accounts.items() if not held.in_flight][
            : _REMEMBERED // 2
        ]:
            del self._accounts[token_id]
