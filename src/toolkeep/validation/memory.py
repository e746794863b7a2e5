"""Remembers refusals: the same call refused twice, and one agent refused again and again (VAL-7).

Holds hashes and counts, never arguments. One lock; both memories are bounded.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from toolkeep.events import Bus
from toolkeep.limits import QUIET_SECONDS, REFUSALS_IN_A_ROW, REMEMBERED_REFUSALS


class Caller(NamedTuple):
    """Who calls, and where in which conversation."""

    agent: str
    conversation: str = ""
    correlation_id: str = ""


class Earlier(NamedTuple):
    """What is known of the refusals before one."""

    is_repeated: bool
    """Whether this very call was refused before."""
    is_too_often: bool
    """Whether there were too many in a row."""


class RefusalMemory:
    """What was refused to whom, for one keep; `bus` is told of every refusal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, bus: Bus | None = None) -> None:
        self._clock = clock
        self.bus = bus or Bus()
        self._lock = threading.Lock()
        self._calls: OrderedDict[tuple[str, str, str, int], None] = OrderedDict()
        self.rows: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        """Refusals in a row and the time of the last, by agent and tool; empty while all goes well."""

    def note(self, caller: Caller, tool: str, arguments: bytes) -> "Earlier":
        """Remember one more refusal; what there was before it. A quiet while starts a row anew."""
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
        return Earlier(is_repeated, row > REFUSALS_IN_A_ROW)

    def forget(self, agent: str, tool: str) -> None:
        """A call passed: the row is over."""
        with self._lock:
            self.rows.pop((agent, tool), None)
