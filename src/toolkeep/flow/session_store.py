"""Where the states of sessions are kept, by their keys: in memory, or in a file that processes share."""

import threading
from typing import Final, Protocol

from toolkeep.flow.session_state import FALLEN, Snapshot

STATES: Final = 200_000
"""States that are kept in memory; about 300 bytes each."""


class SessionStates(Protocol):
    """States by key. A state only falls: to put one joins it with the one that is there."""

    @property
    def generation(self) -> int:
        """Another number after another process has put or dropped a state."""

    def get(self, key: str, since: float = 0.0) -> Snapshot | None:
        """The state of a key; None if there is none, or none put or used after `since`."""

    def put(self, key: str, state: Snapshot, now: float) -> None:
        """Join a state with what is there, durably where there is a disk."""

    def drop(self, key: str) -> None:
        """Forget a state: a person, or the host's program, begins anew."""

    def close(self) -> None:
        """Close what is open."""


class MemorySessionStates:
    """The states of a keep without a state folder."""

    generation: Final = 0

    def __init__(self) -> None:
        self._states: dict[str, tuple[Snapshot, float]] = {}
        self._lock = threading.Lock()
        self._is_over = False

    def get(self, key: str, since: float = 0.0) -> Snapshot | None:
        """The state of a key."""
        state, at = self._states.get(key, (None, 0.0))
        if state is None and self._is_over:
            return FALLEN  # it may have been one of those that found no room
        return state if at >= since else None

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

    def close(self) -> None:
        """No-op."""
