"""What a worker refused, in numbers by kind: it tells every server that it serves, which record it.

A flood fills neither its memory nor a heartbeat. The reasons are constants: no word of a frame is told on.
"""

from typing import Final, Literal

from toolkeep.fleet.messages import REFUSAL_KINDS, RefusalCount

_OTHER: Final = ("frame", "of many other kinds", "")


class Refusals:
    """Of one process, since it began."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Literal["frame", "job", "code"], str, str], int] = {}
        self._recorded: dict[tuple[str, str, str, str], int] = {}
        """How many are in the log of a trusted server, by its token and kind."""

    def add(self, what: Literal["frame", "job", "code"], reason: str, server: str = "") -> None:
        """Count one; `server` is the token of a trusted server in whose name it came."""
        kind = (what, reason, server)
        if kind not in self._counts and len(self._counts) >= REFUSAL_KINDS - 1:
            kind = _OTHER
        self._counts[kind] = self._counts.get(kind, 0) + 1

    def counts(self, told: str) -> tuple[RefusalCount, ...]:
        """All of them, for the server of this token."""
        return tuple(
            RefusalCount(*kind, count, self._recorded.get((told, *kind), 0))
            for kind, count in self._counts.items()
        )

    def note_recorded(self, told: str, recorded: tuple[RefusalCount, ...]) -> None:
        """A server has so many in its log: if it is started anew, it records the rest alone."""
        for one in recorded:
            kind = (one.what, one.reason, one.server)
            if kind in self._counts:
                before = self._recorded.get((told, *kind), 0)
                # No more than there are: a stolen key of the server could hide what is refused later.
                self._recorded[told, *kind] = max(before, min(one.count, self._counts[kind]))
