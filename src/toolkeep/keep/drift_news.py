"""What was told of agents that did new things, and what a person has seen of it: both as the log holds them.

In: a log, which is followed. Out: the drifts that nobody acknowledged. To acknowledge is an `OperatorChange`
with the agent as its name and the time up to which as its difference; it changes nothing else.
"""

import threading
from itertools import islice, takewhile
from typing import Any, Final

import msgspec

from toolkeep.stores.records import ReadableLog

SEEN: Final = "drift seen"
"""What an `OperatorChange` is about that acknowledges."""
NEWS: Final = 200
"""Drifts that are listed, the newest."""
_RECORDS: Final = 100_000
"""Records that are looked through at first, about a second."""


class DriftNews(msgspec.Struct, frozen=True, kw_only=True):
    """An agent did something new."""

    agent: str
    kind: str
    """`tool`, `host`, `folder`, `origin` or `measure`."""
    tool: str
    """Of the newest call that did."""
    values: tuple[str, ...]
    count: int
    """How many new things; `values` names the first of them."""
    time: str


class DriftReader:
    """Follows the log of one keep."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = -1
        self._news: list[DriftNews] = []
        self._seen: dict[str, str] = {}
        """By agent, up to when."""

    @property
    def has_read(self) -> bool:
        """Whether the log was read; it takes seconds where it is long."""
        return self._last >= 0

    def open(self, log: ReadableLog) -> list[DriftNews]:
        """What nobody acknowledged, the newest first."""
        with self._lock:
            self._follow(log)
            return [one for one in reversed(self._news) if one.time > self._seen.get(one.agent, "")]

    def _follow(self, log: ReadableLog) -> None:
        back = islice(log.read_back(), _RECORDS)
        fresh = list(takewhile(lambda entry: entry.index > self._last, back))
        for entry in reversed(fresh):
            said: Any = entry.record
            if said.get("type") == "AgentDrift":
                self._news.append(
                    DriftNews(
                        agent=said["agent"],
                        kind=said["kind"],
                        tool=said["tool"],
                        values=tuple(said["values"]),
                        count=said["count"],
                        time=said["time"],
                    )
                )
            elif said.get("type") == "OperatorChange" and said.get("what") == SEEN:
                self._seen[said["name"]] = max(said["difference"], self._seen.get(said["name"], ""))
        if fresh:
            self._last = fresh[0].index
        del self._news[:-NEWS]
