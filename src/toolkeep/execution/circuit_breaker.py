"""Circuit breaker per tool: a tool that keeps failing is suspended for a while (EXE-7)."""

import threading
import time
from collections.abc import Callable

from toolkeep.calls import Refusal, ToolCall, refuse
from toolkeep.errors import Code
from toolkeep.limits import CallLimits


class CircuitBreaker:
    """Counts consecutive failures. Beyond the limit, calls are refused until a trial call succeeds."""

    def __init__(self, limits: CallLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._rows: dict[str, tuple[int, float]] = {}
        """Consecutive failures and time of the next trial, by definition and code; only failing tools."""

    def check(self, request: ToolCall, tool: str) -> Refusal | None:
        """A refusal while the circuit is open."""
        if not self._rows:
            return None
        with self._lock:
            return self._suspended(request, tool)

    def begin(self, request: ToolCall, tool: str) -> Refusal | None:
        """Like `check`, for a call about to run: it becomes the trial (half-open), others wait for it."""
        if not self._rows:
            return None
        with self._lock:
            refusal = self._suspended(request, tool)
            row, _ = self._rows.get(tool, (0, 0.0))
            # Half-open: the next trial time moves on at once, so that only one call tests a broken tool.
            if refusal is None and row >= self._limits.failures_in_a_row:
                self._rows[tool] = (row, self._clock() + self._limits.suspended_s)
            return refusal

    def _suspended(self, request: ToolCall, tool: str) -> Refusal | None:
        row, until = self._rows.get(tool, (0, 0.0))
        if row < self._limits.failures_in_a_row or (now := self._clock()) >= until:
            return None
        message = f"Tool '{request.tool}' failed {row} times in a row and is suspended"
        wait = f"{until - now:.0f} s"
        return refuse(request, Code.CIRCUIT_OPEN, message, f"Do without it, or try again in {wait}.")

    def note(self, tool: str, *, is_failure: bool) -> None:
        """Record how a run ended."""
        if not is_failure and not self._rows:
            return
        with self._lock:
            if not is_failure:
                self._rows.pop(tool, None)
                return
            row = self._rows.get(tool, (0, 0.0))[0] + 1
            self._rows[tool] = (row, self._clock() + self._limits.suspended_s)
