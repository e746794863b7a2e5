"""Remember refusals: the same call refused twice, and many refusals in a row for one agent (VAL-7).

Stores hashes and counts, never arguments. One lock; both tables are bounded, or an agent that sends ever new
bad calls would fill the memory of the host.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from toolkeep.events import Bus
from toolkeep.limits import QUIET_SECONDS, REFUSALS_IN_A_ROW, REMEMBERED_REFUSALS


class Caller(NamedTuple):
    """The agent that calls, and its conversation."""

    agent: str
    conversation: str = ""
    correlation_id: str = ""


class RefusalCount(NamedTuple):
    """What is known about earlier refusals."""

    is_repeated: bool
    """Whether this very call was refused before."""
    is_too_often: bool
    """Whether too many refusals came in a row."""


class RefusalHistory:
    """The refusals of one keep; `bus` receives an event for each."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, bus: Bus | None = None) -> None:
        self._clock = clock
        self.bus = bus or Bus()
        self._lock = threading.Lock()
        self._calls: OrderedDict[tuple[str, str, str, int], None] = OrderedDict()
        self.rows: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        """Refusals in a row and the time of the last, by agent and tool; empty while calls succeed."""

    def note(self, caller: Caller, tool: str, arguments: bytes) -> "RefusalCount":
        """Record a refusal and return what preceded it. A quiet period resets the count."""
        call = (caller.agent, caller.conversation, tool, hash(arguments))
        now, key = self._clock(), (caller.agent, tool)
        with self._lock:
            is_repeated = call in self._calls
            self._calls[call] = None
            self._calls.move_to_end(call)
            if len(self._calls) > REMEMBERED_REFUSALS:
                self._calls.popitem(last=False)
            row, last = self.rows.get(key, (0, now))
            row = row + 1 if now - last < QUIET_SECONDS else 1
            self.rows[key] = (row, now)
            self.rows.move_to_end(key)
            if len(self.rows) > REMEMBERED_REFUSALS:
                self.rows.popitem(last=False)
        return RefusalCount(is_repeated, row > REFUSALS_IN_A_ROW)

    def forget(self, agent: str, tool: str) -> None:
        """Reset the count: a call was valid."""
        with self._lock:
            self.rows.pop((agent, tool), None)
