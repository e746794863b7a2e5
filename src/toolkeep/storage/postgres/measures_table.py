"""What calls added to measures, summed over all servers that share a PostgreSQL (FLO-4).

Each pair of subject and source has a head, which is locked while a call sums and adds, and a log of numbered
additions. A server keeps what it has read, and reads what is new. Head and additions carry MACs: one that was
altered, put back or taken out of the middle makes the sum the largest there is, and so does a head that is
older than the one this server saw. Who deletes a head with all its additions resets the sum for servers that
have not seen it since they started.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from toolkeep.flow.measures import MOST
from toolkeep.flow.session_store import FOLDED_S, Addition, Window
from toolkeep.storage.group_commit import ThreadGroupCommit
from toolkeep.storage.postgres.shared_database import SharedDatabase, columns
from toolkeep.storage.row_key import RowKey

log = logging.getLogger("toolkeep.store")

_PAIRS: Final = 20_000
"""Pairs that a server remembers; the least recently used is read again."""
_PRUNED_EVERY: Final = 64
"""Additions of a pair after which old ones are looked for."""

Pair = tuple[str, str]
"""Subject and source."""

_MAKE = """
INSERT INTO shared_measures (subject, source, version, pruned, folded, last_at, mac)
SELECT subject, source, 0, 0, 0, 0, mac
FROM unnest(%s::text[], %s::text[], %s::bytea[]) AS new (subject, source, mac) ORDER BY 1, 2
ON CONFLICT DO NOTHING
"""
# Sorted: two servers that take the same heads in opposite orders would wait for each other.
_LOCK = """
SELECT FROM shared_measures JOIN unnest(%s::text[], %s::text[]) AS wanted (subject, source)
USING (subject, source) ORDER BY subject, source FOR UPDATE OF shared_measures
"""
# One statement: head and additions of one moment.
_READ = """
SELECT head.subject, head.source, head.version, pruned, folded, last_at, head.mac,
    added.version, call, at, value, until, added.mac
FROM unnest(%s::text[], %s::text[], %s::int8[]) AS wanted (subject, source, after)
JOIN shared_measures AS head USING (subject, source)
LEFT JOIN shared_additions AS added ON added.subject = head.subject AND added.source = head.source
    AND added.version > greatest(after, pruned)
ORDER BY 1, 2, added.version
"""
_ADD = """
INSERT INTO shared_additions (subject, source, version, call, at, value, until, mac)
SELECT * FROM unnest(
    %s::text[], %s::text[], %s::int8[], %s::text[], %s::float8[], %s::int8[], %s::float8[], %s::bytea[]
)
"""
_SET = """
UPDATE shared_measures AS head
SET version = new.version, pruned = new.pruned, folded = new.folded, last_at = new.last_at, mac = new.mac
FROM unnest(%s::text[], %s::text[], %s::int8[], %s::int8[], %s::int8[], %s::float8[], %s::bytea[])
    AS new (subject, source, version, pruned, folded, last_at, mac)
WHERE head.subject = new.subject AND head.source = new.source
"""
_PRUNE = """
DELETE FROM shared_additions AS added
USING unnest(%s::text[], %s::text[], %s::int8[]) AS over (subject, source, pruned)
WHERE added.subject = over.subject AND added.source = over.source AND added.version <= over.pruned
"""
_OF_SUBJECT = """
SELECT source, version, pruned, folded, last_at, mac FROM shared_measures WHERE subject = %s
ORDER BY source FOR UPDATE
"""


class Measuring(NamedTuple):
    """What a call asks for: its row of each addition is set, raised or removed, and windows are summed."""

    call: str
    additions: tuple[Addition, ...]
    windows: tuple[Window, ...] = ()
    now: float = 0.0
    is_more: bool = False
    """Whether the additions are added to what the call added before."""
    is_release: bool = False


class _Row(NamedTuple):
    """What a call added, as its newest addition says."""

    version: int
    at: float
    value: int
    until: float | None


class _Head(NamedTuple):
    version: int = 0
    pruned: int = 0
    """Additions up to this version were removed."""
    folded: int = 0
    """What is left of them, where they count for as long as the session lasts."""
    last_at: float = 0.0


class _Known:
    """What a server has read of a pair."""

    __slots__ = ("head", "rows")

    def __init__(self) -> None:
        self.head = _Head()
        self.rows: dict[str, _Row] = {}

    def take(self, found: "_Pair") -> None:
        """Take over what was committed."""
        self.head = found.head
        for call, row in found.changed.items():
            if row is None:
                self.rows.pop(call, None)
            else:
                self.rows[call] = row
        if found.head.pruned > found.before.pruned:
            self.rows = {call: row for call, row in self.rows.items() if row.version > found.head.pruned}


class _Pair:
    """A pair in one transaction, which may be run again: `known` stays as it is until it is committed."""

    def __init__(self, pair: Pair, known: _Known) -> None:
        self.pair = pair
        self.before = known.head
        self.head = known.head
        self.changed: dict[str, _Row | None] = {}
        self.added: list[tuple[str, _Row]] = []
        self.is_forged = False
        self._rows = known.rows

    @property
    def is_due(self) -> bool:
        """Whether old additions are looked for."""
        return self.head.version // _PRUNED_EVERY > self.before.version // _PRUNED_EVERY

    def row(self, call: str) -> _Row | None:
        """What a call added."""
        found = self.changed[call] if call in self.changed else self._rows.get(call)
        return found if found is not None and found.version > self.head.pruned else None

    def rows(self) -> Iterable[tuple[str, _Row]]:
        """Each call that counts."""
        pruned, changed = self.head.pruned, self.changed
        for call, row in self._rows.items():
            if call not in changed and row.version > pruned:
                yield call, row
        for call, new in changed.items():
            if new is not None and new.version > pruned:
                yield call, new

    def put(self, call: str, at: float, value: int, until: float | None) -> None:
        """Set what a call added; 0 to remove it."""
        if self.is_forged:
            return
        row = _Row(self.head.version + 1, at, value, until)
        self.head = self.head._replace(version=row.version, last_at=max(at, self.head.last_at))
        self.added.append((call, row))
        self.changed[call] = row if value else None

    def sum(self, call: str, since: float | None) -> int:
        """What calls other than this one added."""
        if self.is_forged:
            return MOST
        added = sum(row.value for of, row in self.rows() if of != call and (since is None or row.at > since))
        return added + self.head.folded if since is None else added

    def prune(self, now: float) -> None:
        """Leave out the oldest additions that no longer count, and fold those that do for a session."""
        if self.is_forged:
            return
        stays = self.head.version + 1
        for _, row in self.rows():
            is_over = row.at < now - FOLDED_S if row.until is None else row.until <= now
            if not is_over:
                stays = min(stays, row.version)
        folded = sum(row.value for _, row in self.rows() if row.until is None and row.version < stays)
        self.head = self.head._replace(pruned=stays - 1, folded=min(self.head.folded + folded, MOST))


class PostgresMeasures:
    """The measures of all servers of one keep."""

    def __init__(self, database: SharedDatabase, key: RowKey) -> None:
        self._database = database
        self._key = key
        self._known: OrderedDict[Pair, _Known] = OrderedDict()
        self._changes: ThreadGroupCommit[Measuring, list[int]] = ThreadGroupCommit(self._made)

    def measure(self, wanted: Measuring) -> list[int]:
        """The sum of each window, at once with the additions."""
        return self._changes.put(wanted)

    def _made(self, group: Sequence[Measuring]) -> list[list[int]]:
        """Serve calls in one transaction, each as if it came after the one before it."""
        locked = sorted({_pair(one) for call in group for one in call.additions})
        others = {_pair(one) for call in group for one in call.windows} - set(locked)

        def work(connection: Any) -> tuple[dict[Pair, _Pair], list[list[int]]]:
            found = self._read(connection, locked, [*locked, *sorted(others)])
            sums = [_serve(call, found) for call in group]
            self._write(connection, [found[pair] for pair in locked], max(call.now for call in group))
            return found, sums

        found, sums = self._database.change(work) if locked else self._database.read(work)
        for pair, one in found.items():
            if not one.is_forged:
                self._knows(pair).take(one)
        while len(self._known) > _PAIRS:
            self._known.popitem(last=False)
        return sums

    def _knows(self, pair: Pair) -> _Known:
        found = self._known.get(pair)
        if found is None:
            found = self._known[pair] = _Known()
        self._known.move_to_end(pair)
        return found

    def _read(self, connection: Any, locked: list[Pair], wanted: list[Pair]) -> dict[Pair, _Pair]:
        nothing = _Known()
        found = {pair: _Pair(pair, self._known.get(pair, nothing)) for pair in wanted}
        if new := [pair for pair in locked if not found[pair].before.version]:
            connection.execute(_MAKE, columns((*pair, self._head_mac(pair, _Head())) for pair in new))
        if locked:
            connection.execute(_LOCK, columns(locked))
        rows: dict[Pair, list[tuple[Any, ...]]] = {}
        after = [(*pair, one.before.version) for pair, one in found.items()]
        for row in connection.execute(_READ, columns(after)):
            rows.setdefault((row[0], row[1]), []).append(row[2:])
        for pair, one in found.items():
            self._verify(one, rows.get(pair, []))
        return found

    def _verify(self, one: _Pair, rows: list[tuple[Any, ...]]) -> None:
        """Take over what is new of a pair, if servers with the same key wrote all of it."""
        if not rows and not one.before.version:
            return  # nothing was ever added
        head = _Head(*rows[0][:4]) if rows else _Head()
        added = [row[5:] for row in rows if row[5] is not None]
        expected = range(max(one.before.version, head.pruned) + 1, head.version + 1)
        one.is_forged = (
            head.version < one.before.version
            or not self._key.is_authentic(rows[0][4], *_head_parts(one.pair, head))
            or [row[0] for row in added] != list(expected)
            or not all(self._key.is_authentic(row[5], *_row_parts(one.pair, row)) for row in added)
        )
        if one.is_forged:
            log.error("a measure in the shared database was altered", extra={"subject": one.pair[0]})
            return
        one.head = head
        for version, call, at, value, until, _ in added:
            one.changed[call] = _Row(version, at, value, until) if value else None

    def _write(self, connection: Any, changed: list[_Pair], now: float) -> None:
        changed = [one for one in changed if one.added]
        pruned = [one for one in changed if one.is_due]
        for one in pruned:
            one.prune(now)
        rows = [
            (*one.pair, row.version, call, row.at, row.value, row.until)
            for one in changed
            for call, row in one.added
            if row.version > one.head.pruned
        ]
        if rows:
            macs = (self._key.mac(*_row_parts(row[:2], row[2:])) for row in rows)
            connection.execute(_ADD, columns((*row, mac) for row, mac in zip(rows, macs, strict=True)))
        if changed:
            heads = ((*one.pair, *one.head, self._head_mac(one.pair, one.head)) for one in changed)
            connection.execute(_SET, columns(heads))
        if pruned:
            connection.execute(_PRUNE, columns((*one.pair, one.head.pruned) for one in pruned))

    def reset(self, subject: str, now: float, since: float | None = None) -> None:
        """Begin all sums of a subject anew; with `since` only if nothing was added after it."""

        def work(connection: Any) -> dict[Pair, _Head]:
            found = {}
            for source, *held, mac in connection.execute(_OF_SUBJECT, (subject,)).fetchall():
                pair, head = (subject, source), _Head(*held)
                is_whole = self._key.is_authentic(mac, *_head_parts(pair, head))
                if since is not None and (head.last_at >= since or not is_whole):
                    return {}
                # Above what any server has seen, also of a head that was deleted and made again.
                version = max(head.version, int(now * 1e6)) + 1
                found[pair] = _Head(version, version, 0, head.last_at)
            if found:
                heads = ((*pair, *head, self._head_mac(pair, head)) for pair, head in found.items())
                connection.execute(_SET, columns(heads))
                connection.execute(_PRUNE, columns((*pair, head.pruned) for pair, head in found.items()))
            return found

        self._database.change(work)

    def _head_mac(self, pair: Pair, head: _Head) -> bytes:
        return self._key.mac(*_head_parts(pair, head))


def _pair(one: Addition | Window) -> Pair:
    return one.subject, one.source


def _serve(call: Measuring, found: dict[Pair, _Pair]) -> list[int]:
    sums = [found[_pair(window)].sum(call.call, window.since) for window in call.windows]
    for one in call.additions:
        pair = found[_pair(one)]
        held = pair.row(call.call)
        if call.is_release:
            if held is not None:
                pair.put(call.call, held.at, 0, held.until)
            continue
        before = held.value if held is not None and call.is_more else 0
        until = None if one.kept_s is None else call.now + one.kept_s
        pair.put(call.call, call.now, min(before + one.value, MOST), until)
    return sums


def _head_parts(pair: Pair, head: _Head) -> tuple[str, ...]:
    return "measure", *pair, *map(repr, head)


def _row_parts(pair: Sequence[str], row: Sequence[Any]) -> tuple[str, ...]:
    version, call, at, value, until = row[:5]
    return "addition", *pair, call, repr((version, at, value, until))
