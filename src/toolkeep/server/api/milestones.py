"""What has happened in a keep so far, read from its log once, oldest record first.

A part of the log at a time: a view of a long log never waits for all of it. What has happened stays true.
"""

import threading
from itertools import takewhile
from typing import Final

import msgspec

from toolkeep.audit.entry import Entry
from toolkeep.keep.keep import Keep

_RECORDS: Final = 5_000
"""Records that one view reads: some 50 ms."""
_PERSON: Final = "operator"
"""The agent of a person on the page or at the command line, who is no client."""


class Milestones(msgspec.Struct, frozen=True, kw_only=True):
    """The first of each kind."""

    client_call: str = ""
    """The first call of an agent that is no person."""
    ok_call: str = ""
    """The first call that succeeded."""
    answered_call: str = ""
    """The first call that a person approved or denied."""


class MilestoneReader:
    """Follows the log of one keep."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self._found = Milestones()

    def read(self, keep: Keep) -> Milestones:
        """What has happened, as far as the log was read."""
        with self._lock:
            if not all((self._found.client_call, self._found.ok_call, self._found.answered_call)):
                self._follow(keep)
            return self._found

    def _follow(self, keep: Keep) -> None:
        newest = next(iter(keep.record.log.read_back()), None)
        if newest is None or newest.index < self._next:
            return
        stop = min(newest.index + 1, self._next + _RECORDS)
        back = keep.record.log.read_back(stop)
        for entry in reversed(list(takewhile(lambda one: one.index >= self._next, back))):
            self._count(entry)
        self._next = stop

    def _count(self, entry: Entry) -> None:
        said, found = entry.record, self._found
        call = str(said.get("call", ""))
        if said.get("type") == "ToolInvoked" and said.get("agent") != _PERSON and not found.client_call:
            self._found = msgspec.structs.replace(found, client_call=call)
        if said.get("type") == "Approval" and said.get("approver") and not found.answered_call:
            self._found = msgspec.structs.replace(self._found, answered_call=call)
        if said.get("status") == "ok" and call and not found.ok_call:
            self._found = msgspec.structs.replace(self._found, ok_call=call)
