"""Which requests take long: for those, somebody looks whether the client is still there."""

import asyncio
from typing import Final, Protocol

_TICK_S: Final = 0.025


class Watched(Protocol):
    """A request that waits for its call."""

    def look(self) -> None:
        """See whether the client is still there, from now on."""


class Watch:
    """Has somebody look for the clients of calls that take long; most are over before.

    One timer for all: a timer of its own for each call took 15 µs of it.
    """

    def __init__(self) -> None:
        self._new: set[Watched] = set()
        self._old: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, one: Watched) -> None:
        """Look for its client, if it is still here at the second tick from now."""
        self._new.add(one)
        loop = asyncio.get_running_loop()
        if self._timer is None or self._loop is not loop:
            self._loop = loop
            self._timer = loop.call_later(_TICK_S, self._tick)

    def discard(self, one: Watched) -> None:
        """Its call is over."""
        self._new.discard(one)
        self._old.discard(one)

    def _tick(self) -> None:
        due, self._old, self._new = self._old, self._new, set()
        for one in due:
            one.look()
        self._timer = None
        if self._old:
            self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)
