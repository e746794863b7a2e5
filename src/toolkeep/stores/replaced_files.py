"""What built-in tools replaced when they wrote files, so that a call can be taken back (TLS-4).

Comes in: the bytes of a file as they were before a call, which may be secret. They are shown to operators
only, and never to a model.
"""

import threading
from collections.abc import Sequence
from typing import Protocol

import msgspec


class Replaced(msgspec.Struct, frozen=True, kw_only=True):
    """What one call replaced in one file."""

    call: str
    tool: str
    agent: str
    session: str
    conversation: str
    path: str
    """The real path."""
    at: float
    """POSIX seconds."""
    was_there: bool
    before: bytes | None
    """The content, empty of a file that was not there; None if it was too large to be kept."""
    after_sha256: str = ""
    """Of what the call left; empty if that is not known, as after a crash."""
    undone_by: str = ""
    """The call that took it back."""


class ReplacedFiles(Protocol):
    """Keeps them for a while."""

    def put(self, replaced: Replaced) -> None:
        """Keep what a call is about to replace."""

    def note_after(self, call: str, sha256: str) -> None:
        """Note what a call left."""

    def note_undone(self, call: str, undone_by: str) -> None:
        """Note that a call was taken back."""

    def of_call(self, call: str) -> Replaced | None:
        """What a call replaced; None if it replaced nothing, or that is no longer kept."""

    def of_session(self, session: str, agent: str = "") -> Sequence[Replaced]:
        """What the calls of a session or conversation replaced, newest first."""

    def close(self) -> None:
        """Close it."""


class MemoryReplacedFiles:
    """For a keep without a state folder."""

    def __init__(self, most: int = 100) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: dict[str, Replaced] = {}

    def put(self, replaced: Replaced) -> None:
        """Keep what a call is about to replace."""
        with self._lock:
            self._kept[replaced.call] = replaced
            while len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]

    def note_after(self, call: str, sha256: str) -> None:
        """Note what a call left."""
        self._change(call, after_sha256=sha256)

    def note_undone(self, call: str, undone_by: str) -> None:
        """Note that a call was taken back."""
        self._change(call, undone_by=undone_by)

    def _change(self, call: str, **fields: str) -> None:
        with self._lock:
            if (kept := self._kept.get(call)) is not None:
                self._kept[call] = msgspec.structs.replace(kept, **fields)

    def of_call(self, call: str) -> Replaced | None:
        """What a call replaced; None if it replaced nothing, or that is no longer kept."""
        return self._kept.get(call)

    def of_session(self, session: str, agent: str = "") -> Sequence[Replaced]:
        """What the calls of a session or conversation replaced, newest first."""
        with self._lock:
            kept = list(self._kept.values())
        return [
            one
            for one in reversed(kept)
            if session in (one.session, one.conversation) and (not agent or one.agent == agent)
        ]

    def close(self) -> None:
        """No-op."""
