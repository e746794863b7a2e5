"""Refusals of what anybody can send: the first of a kind is told at once, others as a number once a minute.

A flood must not fill the log. All of it runs on one event loop.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

Kind = TypeVar("Kind", bound=Hashable)

_TELL_SECONDS: Final = 60.0
_KINDS: Final = 100
"""Kinds that are told a minute."""


class RefusalCounts(Generic[Kind]):
    """Counts refusals by kind."""

    def __init__(self, tell: Callable[[Kind, int], None], other: Kind) -> None:
        """`tell` gets a kind and a number; `other` is the kind of all beyond the bound."""
        self._tell = tell
        self._other = other
        self._counts: dict[Kind, int] = {}
        """Refusals of each kind since it was told last."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, kind: Kind, count: int = 1) -> None:
        """Count refusals."""
        if kind not in self._counts and len(self._counts) >= _KINDS:
            kind = self._other
        if kind in self._counts:
            self._counts[kind] += count
            return
        self._counts[kind] = 0
        self._tell(kind, count)
        self._start_timer()

    def tell(self) -> None:
        """Tell what was counted since the last time; each minute while there is something."""
        self._timer = None
        self._counts = {kind: count for kind, count in self._counts.items() if count}
        for kind, count in list(self._counts.items()):
            self._tell(kind, count)
            self._counts[kind] = 0
        if self._counts:
            self._start_timer()

    def close(self) -> None:
        """Tell what was counted, and end."""
        self.tell()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TELL_SECONDS, self.tell)
