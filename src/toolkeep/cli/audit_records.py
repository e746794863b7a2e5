"""Audit records as rows: which tool and agent each belongs to, and how they follow each other."""

import heapq
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolkeep.cli.tables import Column, short_time

if TYPE_CHECKING:
    from toolkeep.audit.entry import Entry
    from toolkeep.storage.log.audit_log import AuditLog

_CALL_CHARS: Final = 8
"""Characters of a call id in a row: enough to name the call in a command."""
_KNOWN_CALLS: Final = 10_000
"""Calls whose tool and agent are remembered while the log is followed."""
_LOOKED_BACK: Final = 1_000
"""Records that are read before the first one shown, to learn the tools and agents of calls under way."""

COLUMNS: Final = (
    Column("INDEX", is_optional=True),
    Column("TIME"),
    Column("CALL"),
    Column("OUTCOME", narrowest=15),
    Column("EVENT", narrowest=15),
    Column("TOOL", narrowest=18),
    Column("AGENT", narrowest=8),
)
"""Without the index, 80 columns have room for an error code, any event, any built-in tool and `operator`."""
SERVER_COLUMNS: Final = (*COLUMNS, Column("SERVER", narrowest=8))
"""For the records of several servers."""
TYPICAL: Final = ("1000000", "23:59:59", "x" * 8, "x" * 13, "x" * 15, "x" * 18, "x" * 8)
"""A row that gives the widths, with those that are there, where rows come one by one."""


class RecordRows:
    """Turns records into rows, oldest first, for one tool or agent or all.

    Only the first record of a call names its tool and agent; the later ones are given the same.
    """

    def __init__(self, *, tool: str | None = None, agent: str | None = None) -> None:
        self._wanted = {"tool": tool, "agent": agent}
        self._calls: dict[str, tuple[str, str]] = {}

    def rows(self, entries: Iterable["Entry"]) -> Iterator[dict[str, Any]]:
        """The fields of the records that fit."""
        for entry in entries:
            row = self._row(entry)
            if all(wanted is None or row[field] == wanted for field, wanted in self._wanted.items()):
                yield row

    def _row(self, entry: "Entry") -> dict[str, Any]:
        record = entry.record
        call = record.get("call", "")
        if record.get("tool"):
            self._calls[call] = record["tool"], record.get("agent", "")
            if len(self._calls) > _KNOWN_CALLS:
                del self._calls[next(iter(self._calls))]
        tool, agent = self._calls.get(call, ("", ""))
        return {
            "index": entry.index,
            "time": record.get("time", ""),
            "type": record.get("type") or record.get("event", ""),  # of records of the log about itself
            "call": call,
            "tool": record.get("tool") or tool,
            "agent": record.get("agent") or agent,
            "status": record.get("status") or record.get("decision") or _outcome(record),
            "codes": record.get("codes", []),
        }


def _outcome(record: dict[str, Any]) -> str:
    # A refused approval has the status of its call.
    return "approved" if record.get("type") == "Approval" else record.get("outcome", "")


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A row for a table; the time is local."""
    status = row["status"] if isinstance(row["status"], str) else ""
    if status == "error" and row["type"] != "ToolCompleted":
        status = "refused"  # it ended before the tool was run
    codes = (code.removeprefix("ACODE-") for code in row["codes"])
    return (
        str(row["index"]),
        _local(row["time"]),
        row["call"][:_CALL_CHARS],
        " ".join([status, *codes]).strip(),
        row["type"],
        row["tool"],
        row["agent"],
        *([row["server"]] if "server" in row else []),
    )


class ServerName(NamedTuple):
    """A server, and the name of its log."""

    server: str
    origin: str


def merge_rows(logs: Iterable[tuple[list[dict[str, Any]], ServerName]]) -> list[dict[str, Any]]:
    """The rows of several logs by time, each with its server; those of one log stay in its order."""
    named = ([{**row, **name._asdict()} for row in rows] for rows, name in logs)
    return list(heapq.merge(*named, key=lambda row: row["time"]))


def _local(time: str) -> str:
    try:
        return short_time(datetime.fromisoformat(time).timestamp())
    except ValueError:
        return time


class Followed:
    """The records of a log in order: the newest ones first of all, then those that are added."""

    def __init__(self, log: "AuditLog") -> None:
        self._log = log
        self._next = 0

    def start(self) -> list["Entry"]:
        """The newest records."""
        return self._after(0, at_most=_LOOKED_BACK)

    def added(self) -> list["Entry"]:
        """The records that were added since."""
        return self._after(self._next)

    def _after(self, start: int, at_most: int | None = None) -> list["Entry"]:
        """Read from the end, so that it costs what is new and not what is there."""
        found: list[Entry] = []
        for entry in self._log.read_back():
            if entry.index < start or len(found) == at_most:
                break
            found.append(entry)
        if found:
            self._next = found[0].index + 1
        return found[::-1]
