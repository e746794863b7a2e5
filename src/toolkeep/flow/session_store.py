"""Where states of sessions and additions to measures are kept: in memory, or in files for all processes."""

import threading
from collections.abc import Collection, Hashable, Sequence
from typing import Final, NamedTuple, Protocol

from toolkeep.flow.session_state import FALLEN, Snapshot

STATES: Final = 200_000
"""States that are kept in memory; about 300 bytes each."""


FOLDED_S: Final = 86_400.0
"""After a day the rows of a session become one: no call that reserved one is still undecided."""


class Addition(NamedTuple):
    """What a call adds to a measure."""

    source: str
    subject: str
    """The agent or session that it counts for."""
    value: int
    """In ten-thousandths."""
    kept_s: float | None
    """How long it counts; None for as long as the session lasts."""


class Window(NamedTuple):
    """What a measure sums: everything of a subject, or what was added after `since`."""

    source: str
    subject: str
    since: float | None


def of_session(key: str) -> str:
    """The subject of what counts for a session."""
    return f"session\n{key}"


class SessionStates(Protocol):
    """States by key. A state only falls: to put one joins it with the one that is there."""

    @property
    def is_remote(self) -> bool:
        """Whether its methods wait for a server elsewhere: no event loop may call them."""

    @property
    def generation(self) -> Hashable:
        """Another value after another process has put or dropped a state."""

    def get(self, key: str, since: float = 0.0) -> Snapshot | None:
        """The state of a key; None if there is none, or none put or used after `since`."""

    async def get_soon(self, key: str, since: float = 0.0) -> Snapshot | None:
        """As `get`, for an event loop: read together with what other calls read."""

    def put(self, key: str, state: Snapshot, now: float) -> None:
        """Join a state with what is there, durably where there is a disk."""

    def drop(self, key: str) -> None:
        """Forget a state and what counts for the session: a person, or the host's program, begins anew."""

    def forget(self, key: str, since: float) -> None:
        """Forget a state that was not put or used after `since`, and what counts for its session."""

    def reserve(
        self, call: str, additions: Collection[Addition], windows: Sequence[Window], now: float
    ) -> list[int]:
        """Sum what calls other than this one added, and add what this one adds, at once for all processes."""

    def add(self, call: str, additions: Collection[Addition], now: float) -> None:
        """Add more of a call."""

    def release(self, call: str, additions: Collection[Addition]) -> None:
        """Remove what a call added."""

    def close(self) -> None:
        """Close what is open."""


class _Row(NamedTuple):
    at: float
    value: int
    until: float | None


class MemorySessionStates:
    """The states of a keep without a state folder."""

    is_remote: Final = False
    generation: Final = 0

    def __init__(self) -> None:
        self._states: dict[str, tuple[Snapshot, float]] = {}
        self._measured: dict[tuple[str, str], dict[str, _Row]] = {}
        self._lock = threading.Lock()
        self._is_over = False

    def get(self, key: str, since: float = 0.0) -> Snapshot | None:
        """The state of a key."""
        state, at = self._states.get(key, (None, 0.0))
        if state is None and self._is_over:
            return FALLEN  # it may have been one of those that found no room
        return state if at >= since else None

    async def get_soon(self, key: str, since: float = 0.0) -> Snapshot | None:
        """As `get`."""
        return self.get(key, since)

    def put(self, key: str, state: Snapshot, now: float) -> None:
        """Join a state with what is there."""
        with self._lock:
            held = self._states.get(key)
            if held is None and len(self._states) >= STATES:
                self._is_over = True
                return
            self._states[key] = (held[0].joined(state) if held else state, now)

    def drop(self, key: str) -> None:
        """Forget a state."""
        with self._lock:
            self._states.pop(key, None)
            self._forget(key)

    def forget(self, key: str, since: float) -> None:
        """Forget a session at rest."""
        with self._lock:
            if key in self._states and self._states[key][1] < since:
                del self._states[key]
            rows = [
                row
                for (_, of), held in self._measured.items()
                if of == of_session(key)
                for row in held.values()
            ]
            if all(row.at < since for row in rows):
                self._forget(key)

    def _forget(self, key: str) -> None:
        for held in [one for one in self._measured if one[1] == of_session(key)]:
            del self._measured[held]

    def reserve(
        self, call: str, additions: Collection[Addition], windows: Sequence[Window], now: float
    ) -> list[int]:
        """Sum and add under one lock."""
        with self._lock:
            sums = [self._sum(call, window) for window in windows]
            for one in additions:
                self._row(call, one, now, 0)
            return sums

    def add(self, call: str, additions: Collection[Addition], now: float) -> None:
        """Add more of a call."""
        with self._lock:
            for one in additions:
                held = self._measured.get((one.source, one.subject), {}).get(call)
                self._row(call, one, now, held.value if held else 0)

    def release(self, call: str, additions: Collection[Addition]) -> None:
        """Remove what a call added."""
        with self._lock:
            for one in additions:
                self._measured.get((one.source, one.subject), {}).pop(call, None)

    def _sum(self, call: str, window: Window) -> int:
        rows = self._measured.get((window.source, window.subject), {})
        since = window.since
        return sum(row.value for of, row in rows.items() if of != call and (since is None or row.at > since))

    def _row(self, call: str, one: Addition, now: float, before: int) -> None:
        rows = self._measured.setdefault((one.source, one.subject), {})
        until = None if one.kept_s is None else now + one.kept_s
        rows.pop(call, None)
        rows[call] = _Row(now, before + one.value, until)
        self._prune(rows, now)

    @staticmethod
    def _prune(rows: dict[str, _Row], now: float) -> None:
        """Take the oldest rows away while they are over, or fold them into one where they stay."""
        while len(rows) > 1:
            oldest = next(call for call in rows if call)
            row = rows[oldest]
            if row.until is None and row.at < now - FOLDED_S:
                folded = rows.pop("", _Row(row.at, 0, None))
                rows[""] = _Row(row.at, folded.value + row.value, None)
            elif row.until is None or row.until > now:
                return
            del rows[oldest]

    def close(self) -> None:
        """No-op."""
