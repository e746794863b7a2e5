"""An index of the calls in this server's log: which fit filters, newest first, and where their records are.

It is made in memory, in the background, when somebody first searches; each search brings it up to date.
Nothing of it is shown: what it finds is read from the log and compared with the filters again. Of a very long
log it covers the newest records. If the log does not continue what was indexed, it is made anew.
"""

import logging
import re
import sqlite3
import threading
import time
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import orjson

from toolkeep.audit.entry import Entry
from toolkeep.audit.errors import AuditBroken
from toolkeep.audit.kept_refusal import ReadBody
from toolkeep.limits import INDEXED_RECORDS, SCANNED_RECORDS
from toolkeep.server.api.recorded_calls import (
    STATUSES,
    CallFilters,
    CallSummary,
    call_of,
    microseconds,
    milliseconds,
    named,
    title_of,
)
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.stores.records import ReadableLog

logger = logging.getLogger("toolkeep.audit")

_AT_ONCE: Final = 2_000
"""Records that a search itself adds, in some 40 ms; more are added in the background."""
_BATCH: Final = 250
"""Records that are added in the background before it pauses for as long: some 5 ms."""
_RETRY_SECONDS: Final = 60.0
"""When a log that could not be indexed is tried again; until then searches read the log itself."""
_CACHED_NAMES: Final = 20_000
"""Names whose numbers are remembered outside the table: some 3 MB."""
_UNREADABLE: Final = (AuditBroken, OSError, ValueError, TypeError, KeyError, sqlite3.Error)

# A set (types, decisions, codes, policies) is one name, each member between newlines: few sets occur.
_AWAITED: Final = 100
"""Calls whose refusal is looked for again: another process writes it a moment after the record."""
_AWAITED_SECONDS: Final = 5.0
"""How long it is looked for: the other process may be slow, and a refusal that was removed never comes."""
_TABLES: Final = """
CREATE TABLE names (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE, folded TEXT NOT NULL);
CREATE TABLE calls (
    newest INTEGER PRIMARY KEY, call TEXT UNIQUE, began_ms INTEGER, took_us INTEGER,
    agent INTEGER, tool INTEGER, session INTEGER, conversation INTEGER,
    outcome INTEGER, types INTEGER, decisions INTEGER, codes INTEGER, ran_us INTEGER, policies INTEGER,
    positions BLOB, reason TEXT
)
"""
_NAMED: Final = "(SELECT id FROM names WHERE text = ?)"
_WITH_MEMBER: Final = "(SELECT id FROM names WHERE instr(text, char(10) || ? || char(10)))"
_WITH_TEXT: Final = "(SELECT id FROM names WHERE instr(folded, ?))"
_TEXTS: Final = ("agent", "tool", "session", "conversation")


class CallIndex:
    """The index of a keep's own log; there is none of another server's."""

    def __init__(self, bodies: ReadBody) -> None:
        """`bodies` are those of the log, which tell why calls were refused or failed."""
        self._bodies = bodies
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._builder: threading.Thread | None = None
        self._index: _Index | None = None
        self._failed_at = -_RETRY_SECONDS

    def find(
        self,
        log: ReadableLog,
        filters: CallFilters,
        *,
        agent: str | None,
        stop: int | None,
        limit: int,
        tells_why: bool = False,
    ) -> tuple[list[CallSummary], int] | None:
        """The newest calls before an index, and the index to go on before; None if there is no index.

        Only those of one agent, unless that is None. `tells_why` says whether the caller may know what
        is kept of refusals: a text is then looked for there, too.
        """
        with self._lock:
            index = self._current(log)
            if index is None or (stop is not None and stop <= index.first):
                return None
            rows = index.find(filters, agent, 1 << 62 if stop is None else stop, limit, tells_why=tells_why)
        begin_ms = filters.begin_ms()
        try:
            bodies = self._bodies if tells_why else None
            calls = [index.read(positions, bodies) for _, positions in rows]
        except AuditBroken as error:
            self._forget(index, error)
            return None
        shown = [
            call
            for call in calls
            if agent in (None, call.newest.agent) and call.began_ms >= begin_ms and filters.fits_call(call)
        ]
        return shown, rows[-1][0] if len(rows) == limit else index.first

    def count(
        self, log: ReadableLog, filters: CallFilters, *, agent: str | None, tells_why: bool = False
    ) -> int | None:
        """How many calls fit; None unless all are indexed."""
        with self._lock:
            index = self._current(log)
            return None if index is None or index.first else index.count(filters, agent, tells_why=tells_why)

    def codes(self, log: ReadableLog) -> set[str]:
        """The error codes of all calls that are indexed."""
        with self._lock:
            index = self._current(log)
            return set() if index is None else index.codes()

    def entries_of(self, log: ReadableLog, call_id: str) -> list[Entry]:
        """The entries of a call in order; none if not all are indexed."""
        with self._lock:
            index = self._current(log)
            positions = index.positions_of([call_id]).get(call_id, b"") if index else b""
        entries = index.log.entries_at(array("Q", positions)) if index else []
        types = [entry.record.get("type") for entry in entries if entry.record.get("call") == call_id]
        return entries if len(types) == len(entries) and "ToolInvoked" in types else []

    def prepare(self, log: ReadableLog) -> None:
        """Begin to make it, if it is not there."""
        with self._lock:
            if self._index is None:
                self._current(log)

    def close(self) -> None:
        """Stop making it."""
        self._stopping.set()
        if (builder := self._builder) is not None:
            builder.join()

    def _current(self, log: ReadableLog) -> "_Index | None":
        """The index of everything in the log; if much is missing, it is made in the background."""
        if not isinstance(log, AuditLog) or self._builder or self._stopping.is_set():
            return None
        if time.monotonic() - self._failed_at < _RETRY_SECONDS:
            return None
        index, self._index = self._index, None
        if index is not None and (index.log is not log or index.size > INDEXED_RECORDS):
            index = None
        if index is not None:
            try:
                if sum(islice(index.add_new(_AT_ONCE), 1)) < _AT_ONCE:
                    self._index = index
                    return index
            except _UNREADABLE as error:
                _warn(error)
                index = None
        self._builder = threading.Thread(
            target=self._build, args=(log, index), name="toolkeep-index", daemon=True
        )
        self._builder.start()
        return None

    def _forget(self, index: "_Index", error: AuditBroken) -> None:
        _warn(error)
        with self._lock:
            self._index = None if self._index is index else self._index

    def _build(self, log: AuditLog, index: "_Index | None") -> None:
        try:
            index = index or _Index(log, self._bodies)
            began = time.thread_time()
            for _ in index.add_new(_BATCH):
                # A server that answers calls must not wait for this: it takes half of the time.
                if self._stopping.wait(time.thread_time() - began):
                    return
                began = time.thread_time()
        except _UNREADABLE as error:
            _warn(error)
            index, self._failed_at = None, time.monotonic()
        finally:
            with self._lock:
                self._index, self._builder = index, None


class _Index:
    """The calls of a log from some record on, up to a place."""

    def __init__(self, log: AuditLog, bodies: ReadBody) -> None:
        self.log = log
        self._bodies = bodies
        self._place = log.place_before(INDEXED_RECORDS // 2)
        self._begin = self._place.size
        self.first = self._begin + SCANNED_RECORDS if self._begin else 0
        """The calls that end with a record from here on are indexed; earlier ones may lack records."""
        self._names: dict[str, int] = {}
        self._recent: dict[str, list[Entry]] = {}
        """The entries of calls that were added last, which the next ones often belong to."""
        self._awaited: dict[str, float] = {}
        """Calls whose refusal was not there yet, and until when it is looked for."""
        self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._database.executescript(_TABLES)

    @property
    def size(self) -> int:
        """How many records are indexed."""
        return self._place.size - self._begin

    def find(
        self, filters: CallFilters, agent: str | None, stop: int, limit: int, *, tells_why: bool
    ) -> list[tuple[int, bytes]]:
        """The newest record of each call, and where its records are; the newest call first."""
        where, values = _conditions(filters, agent, tells_why=tells_why)
        return self._database.execute(
            f"SELECT newest, positions FROM calls WHERE newest >= ? AND newest < ? AND {where} "  # noqa: S608 -- constants
            "ORDER BY newest DESC LIMIT ?",
            (self.first, stop, *values, limit),
        ).fetchall()

    def count(self, filters: CallFilters, agent: str | None, *, tells_why: bool) -> int:
        """How many calls fit."""
        where, values = _conditions(filters, agent, tells_why=tells_why)
        found = self._database.execute(f"SELECT count(call) FROM calls WHERE {where}", values)  # noqa: S608 -- constants
        return int(found.fetchone()[0])

    def codes(self) -> set[str]:
        """The error codes of all calls."""
        found = self._database.execute("SELECT text FROM names WHERE id IN (SELECT codes FROM calls)")
        return {code for (text,) in found for code in text.split()}

    def read(self, positions: bytes, bodies: ReadBody | None) -> CallSummary:
        """A call, from its records in the log."""
        entries = self.log.entries_at(array("Q", positions))
        if len({str(entry.record.get("call", "")) for entry in entries}) != 1:
            raise AuditBroken("the log", "records of a call are elsewhere than they were")
        return _summary(entries, bodies)

    def positions_of(self, calls: Sequence[str]) -> dict[str, bytes]:
        """Where the records of these calls are, as far as they are indexed."""
        marks = ",".join("?" * len(calls))
        found = self._database.execute(f"SELECT call, positions FROM calls WHERE call IN ({marks})", calls)  # noqa: S608 -- marks
        return dict(found)

    def add_new(self, most: int) -> Iterator[int]:
        """Add what the log has since, up to so many records at a time; yields how many."""
        self._look_again()
        for lines in self.log.follow_lines(self._place, most):
            self._add(lines)
            yield len(lines)

    def _add(self, lines: Sequence[tuple[int, bytes]]) -> None:
        """Make the rows of the calls that these lines belong to, from all of their records."""
        grouped: dict[str, list[tuple[int, Entry]]] = defaultdict(list)
        for position, line in lines:
            entry = _entry(line)
            grouped[str(entry.record.get("call", "")) or f"#{entry.index}"].append((position, entry))
        earlier = self.positions_of(list(grouped))
        rows, recent = [], {}
        for call, held in grouped.items():
            positions, entries = array("Q", earlier.get(call, b"")), [entry for _, entry in held]
            if positions:
                entries = (self._recent.get(call) or self.log.entries_at(positions)) + entries
            positions.extend(position for position, _ in held)
            rows.append(self._row(self._told(entries), positions.tobytes()))
            recent[call] = entries
        self._recent = recent
        self._database.execute("BEGIN")
        self._database.executemany("REPLACE INTO calls VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", rows)
        self._database.execute("COMMIT")

    def _told(self, entries: Sequence[Entry]) -> CallSummary:
        """A call with its reason; one whose refusal is not there yet is looked at again."""
        call, name = _summary(entries, self._bodies), str(entries[0].record.get("call", ""))
        if not call.is_told and any(entry.record.get("diagnosis_hash") for entry in entries):
            self._awaited.setdefault(name, time.monotonic() + _AWAITED_SECONDS)
            for old in list(self._awaited)[:-_AWAITED]:
                del self._awaited[old]
        else:
            self._awaited.pop(name, None)
        return call

    def _look_again(self) -> None:
        """Add the reasons of calls whose refusals are there by now."""
        now = time.monotonic()
        for name, positions in self.positions_of(list(self._awaited)).items():
            is_over = self._awaited[name] < now
            call = self._told(self.log.entries_at(array("Q", positions)))
            if is_over:
                self._awaited.pop(name, None)
            if call.is_told:
                self._database.execute("UPDATE calls SET reason = ? WHERE call = ?", (_folded(call), name))

    def _row(self, call: CallSummary, positions: bytes) -> tuple[Any, ...]:
        newest = call.newest
        texts = (newest.agent, newest.tool, call.session, call.conversation, call.outcome)
        return (
            newest.index,
            newest.call or None,
            call.began_ms,
            call.took_us,
            *map(self._name, texts),
            self._name(_set(call.types)),
            self._name(_set(one.decision for one in call.records)),
            self._name(_set(call.codes), " ".join((*call.codes, *map(title_of, call.codes)))),
            call.ran_us,
            self._name(_set(call.policies)),
            positions,
            _folded(call),
        )

    def _name(self, text: str, searched: str = "") -> int:
        if (known := self._names.get(text)) is not None:
            return known
        folded = (searched or text).casefold()
        self._database.execute("INSERT OR IGNORE INTO names (text, folded) VALUES (?, ?)", (text, folded))
        (found,) = self._database.execute("SELECT id FROM names WHERE text = ?", (text,)).fetchone()
        if len(self._names) >= _CACHED_NAMES:
            self._names.clear()
        self._names[text] = found
        return int(found)


def _conditions(filters: CallFilters, agent: str | None, *, tells_why: bool) -> tuple[str, list[Any]]:
    """What a row must fulfill, in SQL, and the values of its marks."""
    wanted: list[tuple[str, list[Any]]] = [("began_ms >= ?", [filters.begin_ms()])]
    texts = [(column, getattr(filters, column)) for column in _TEXTS]
    wanted += [(f"{column} = {_NAMED}", [text]) for column, text in texts if text is not None]
    if agent is not None:
        wanted.append((f"agent = {_NAMED}", [agent]))
    if filters.type is not None:
        wanted.append((f"types IN {_WITH_MEMBER}", [filters.type]))
    if filters.code is not None:
        wanted.append((f"codes IN {_WITH_MEMBER}", [filters.code]))
    if filters.status is not None:
        outcomes = STATUSES.get(filters.status, (filters.status,))
        marks = ",".join("?" * len(outcomes))
        known = f"(SELECT id FROM names WHERE text IN ({marks}))"  # noqa: S608 -- marks
        status = f"(outcome IN {known} OR decisions IN {_WITH_MEMBER})"
        wanted.append((status, [*outcomes, filters.status]))
    if filters.slower_ms is not None:
        wanted.append(("took_us > ?", [int(filters.slower_ms) * 1000]))
    if filters.ran_ms is not None:
        wanted.append(("ran_us > ?", [microseconds(filters.ran_ms)]))
    if filters.policy is not None:
        wanted.append((f"policies IN {_WITH_MEMBER}", [filters.policy]))
    if filters.until is not None:
        wanted.append(("began_ms < ?", [milliseconds(filters.until)]))
    if filters.text is not None:
        columns = " OR ".join(f"{one} IN {_WITH_TEXT}" for one in (*_TEXTS, "codes"))
        escaped = re.sub(r"([%_\\])", r"\\\1", filters.text)
        # `LIKE` takes a quarter of the time of `instr` with `lower`.
        values = [f"%{escaped}%", *[filters.text.casefold()] * (len(_TEXTS) + 1)]
        # Only for those who may read it: a count tells what it says.
        if tells_why:
            columns, values = f"{columns} OR instr(reason, ?)", [*values, filters.text.casefold()]
        wanted.append((f"(call LIKE ? ESCAPE '\\' OR {columns})", values))
    return " AND ".join(condition for condition, _ in wanted), [value for _, held in wanted for value in held]


def _warn(error: Exception) -> None:
    logger.warning("the log does not fit its index, which is made anew", extra={"reason": str(error)})


def _summary(entries: Sequence[Entry], bodies: ReadBody | None) -> CallSummary:
    """A call, from all of its entries in order."""
    return call_of(entries[::-1], dict(reversed(list(named(entries)))), bodies)


def _folded(call: CallSummary) -> str | None:
    """The reason as it is searched; None if its title says as much, which is searched anyway."""
    return call.reason.casefold() if call.reason not in map(title_of, call.codes) else None


def _set(members: Iterable[str]) -> str:
    return "".join(f"\n{one}" for one in sorted(set(members))) + "\n"


def _entry(line: bytes) -> Entry:
    """An entry, without a check that this is its only spelling: what is shown is parsed with it."""
    value = orjson.loads(line)
    return Entry(index=value["index"], previous=value["previous"], record=value["record"])
