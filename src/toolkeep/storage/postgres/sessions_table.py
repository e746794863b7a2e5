"""States of sessions, and what calls added to measures, of servers that share a PostgreSQL (FLO-1, FLO-4).

Each call reads the row of its own session: what a result opened on one server has opened it for the next call
on any. A row carries a MAC; one that does not verify, or is gone while this server knew it, counts as having
seen everything. Whoever can only write to the database can put an older row back, or delete one: a server
that has seen the newer one goes on with that.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Hashable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from toolkeep.flow.session_state import FALLEN, Snapshot
from toolkeep.flow.session_store import Addition, Window, of_session
from toolkeep.host.after_fork import register_after_fork
from toolkeep.storage.group_commit import GroupCommit, ThreadGroupCommit
from toolkeep.storage.postgres.measures_table import Measuring, PostgresMeasures
from toolkeep.storage.postgres.shared_database import SharedDatabase, columns
from toolkeep.storage.row_key import RowKey

log = logging.getLogger("toolkeep.store")

_KNOWN: Final = 100_000
"""States that a server remembers, to notice that a row is gone; about 300 bytes each."""
_FOREVER: Final = float("inf")

_READ = """
SELECT key, state, put_at, mac, extract(epoch FROM clock_timestamp())::float8
FROM unnest(%s::text[]) AS wanted (key) LEFT JOIN shared_sessions USING (key)
"""
# The update changes nothing, but locks the row. Sorted: two servers that take the same rows in opposite
# orders would wait for each other.
_PUT = """
INSERT INTO shared_sessions (key, state, put_at, mac)
SELECT * FROM unnest(%s::text[], %s::bytea[], %s::float8[], %s::bytea[]) ORDER BY 1
ON CONFLICT (key) DO UPDATE SET key = excluded.key
RETURNING key, state, put_at, mac, xmax = 0
"""
_SET = """
UPDATE shared_sessions AS held SET state = new.state, put_at = new.put_at, mac = new.mac
FROM unnest(%s::text[], %s::bytea[], %s::float8[], %s::bytea[]) AS new (key, state, put_at, mac)
WHERE held.key = new.key
"""
_LOCKED = "SELECT state, put_at, mac FROM shared_sessions WHERE key = %s FOR UPDATE"


class _Stored(NamedTuple):
    """A state, and when it was put or used last, by the database's clock."""

    state: Snapshot
    at: float


class PostgresSessionStates:
    """The states of one keep's sessions, and what its calls added. Every method waits for the database."""

    is_remote: Final = True

    def __init__(self, reading: SharedDatabase, writing: SharedDatabase, key: RowKey) -> None:
        """Over two connections: to read waits for no lock."""
        self._reading = reading
        self._writing = writing
        self._key = key
        self._known: OrderedDict[str, _Stored] = OrderedDict()
        self._reads: ThreadGroupCommit[tuple[str, float], _Stored | None] = ThreadGroupCommit(self._read)
        self._reads_of_loops: GroupCommit[tuple[str, float], _Stored | None] = GroupCommit(
            self._read, quick_s=0.0
        )
        self._puts: ThreadGroupCommit[tuple[str, _Stored], None] = ThreadGroupCommit(self._put)
        self._measures = PostgresMeasures(self._writing, key)
        self._skew_s = 0
        self.leave_to_parent()
        register_after_fork(self)

    def leave_to_parent(self) -> None:
        """After fork(), in the child."""
        self._lock = threading.Lock()

    @property
    def generation(self) -> Hashable:
        """Another value each time: any server may have changed any session."""
        return object()

    # --- states ----------------------------------------------------------------------------------

    def get(self, key: str, since: float = 0.0) -> Snapshot | None:
        """The state of a key; one that was altered or is gone counts as having seen everything."""
        there = self._there(since)
        found = self._reads.put((key, there))
        return None if found is None or found.at < there else found.state

    async def get_soon(self, key: str, since: float = 0.0) -> Snapshot | None:
        """As `get`, for an event loop."""
        there = self._there(since)
        found = await self._reads_of_loops.put((key, there))
        return None if found is None or found.at < there else found.state

    def put(self, key: str, state: Snapshot, now: float) -> None:
        """Join a state with what is there."""
        self._puts.put((key, _Stored(state, self._there(now))))

    def drop(self, key: str) -> None:
        """Begin a session anew, on all servers: a row says so, which no server takes for a lost one."""

        def work(connection: Any) -> _Stored:
            row = connection.execute(_LOCKED, (key,)).fetchone()
            begun = self._there(time.time())
            if row is not None:
                begun = max(begun, self._verified(key, *row).state.begun + 1e-3)
            fresh = _Stored(Snapshot(begun=begun), begun)
            for statement in (_PUT, _SET):
                connection.execute(statement, [[column] for column in self._sealed(key, fresh)])
            return fresh

        self._knows({key: self._writing.change(work)})
        self._measures.reset(of_session(key), self._there(time.time()))

    def end(self, key: str, now: float) -> None:  # noqa: ARG002 -- by the database's clock
        """End a session for all servers: its next call begins anew. Only a person may ask for it."""
        self.drop(key)

    def forget(self, key: str, since: float) -> None:
        """Forget a session at rest."""
        there = self._there(since)

        def work(connection: Any) -> None:
            row = connection.execute(_LOCKED, (key,)).fetchone()
            if row is not None and self._verified(key, *row).at < there:
                connection.execute("DELETE FROM shared_sessions WHERE key = %s", (key,))

        self._writing.change(work)
        self._measures.reset(of_session(key), self._there(time.time()), there)

    def stored(self) -> list[tuple[str, Snapshot, float]]:
        """Each key with its state, and when that was stored, newest first."""
        query = "SELECT key, state, put_at, mac FROM shared_sessions ORDER BY put_at DESC, key"
        rows = self._reading.read(lambda connection: connection.execute(query).fetchall())
        return [(key, self._verified(key, *row).state, row[1] - self._skew_s) for key, *row in rows]

    def _read(self, wanted: Sequence[tuple[str, float]]) -> list[_Stored | None]:
        since = dict(sorted(wanted))  # the latest of each
        rows = self._reading.read(lambda connection: connection.execute(_READ, (list(since),)).fetchall())
        with self._lock:
            for key, at in since.items():
                if key in self._known and self._known[key].at < at:
                    del self._known[key]  # of a session that is over: another may go by its name
        skew_s = rows[0][4] - time.time()
        self._reading.check_clock(skew_s)
        # In whole seconds: what two clocks differ by less is not worth a window's edge that moves.
        self._skew_s = round(skew_s)
        found = {key: self._verified(key, *row) for key, *row, _ in rows if row[0] is not None}
        self._knows({key: stored for key, stored in found.items() if stored.at >= since[key]})
        with self._lock:
            return [found.get(key) or self._gone(key) for key, _ in wanted]

    def _gone(self, key: str) -> _Stored | None:
        """What a key without a row counts as; requires the lock."""
        known = self._known.get(key)
        return None if known is None else _Stored(FALLEN, known.at)

    def _put(self, group: Sequence[tuple[str, _Stored]]) -> list[None]:
        new: dict[str, _Stored] = {}
        for key, stored in group:
            new[key] = _joined(stored, new.get(key))

        def work(connection: Any) -> dict[str, _Stored]:
            joined = {}
            sealed = {key: self._sealed(key, stored) for key, stored in new.items()}
            for key, *row, is_new in connection.execute(_PUT, columns(sealed.values())).fetchall():
                with self._lock:
                    before = self._gone(key) if is_new else self._verified(key, *row)
                joined[key] = _joined(new[key], before)
                sealed[key] = self._sealed(key, joined[key])
                if sealed[key] == (key, *row):
                    del sealed[key]
            if sealed:
                connection.execute(_SET, columns(sealed.values()))
            return joined

        self._knows(self._writing.change(work))
        return [None] * len(group)

    def _verified(self, key: str, state: bytes, put_at: float, mac: bytes | None) -> _Stored:
        """A row, joined with what is known here of the same session."""
        if not self._key.is_authentic(mac, "session", key, bytes(state), repr(put_at)):
            log.error("a session in the shared database was altered")
            return _Stored(FALLEN, _FOREVER)
        found = _Stored(msgspec.json.decode(state, type=Snapshot), put_at)
        known = self._known.get(key)
        return found if known is None or found.state.begun > known.state.begun else _joined(found, known)

    def _sealed(self, key: str, stored: _Stored) -> tuple[str, bytes, float, bytes]:
        state = msgspec.json.encode(stored.state, order="deterministic")
        return key, state, stored.at, self._key.mac("session", key, state, repr(stored.at))

    def _knows(self, found: dict[str, _Stored]) -> None:
        with self._lock:
            for key, stored in found.items():
                if stored.at != _FOREVER:
                    self._known[key] = stored
                    self._known.move_to_end(key)
            while len(self._known) > _KNOWN:
                self._known.popitem(last=False)

    def _there(self, here: float) -> float:
        """A time of this machine's clock, by the database's."""
        return here + self._skew_s

    # --- measures --------------------------------------------------------------------------------

    def reserve(
        self, call: str, additions: Collection[Addition], windows: Sequence[Window], now: float
    ) -> list[int]:
        """Sum and add in one transaction over all servers."""
        shifted = tuple(
            one if one.since is None else one._replace(since=self._there(one.since)) for one in windows
        )
        return self._measures.measure(Measuring(call, tuple(additions), shifted, self._there(now)))

    def add(self, call: str, additions: Collection[Addition], now: float) -> None:
        """Add more of a call."""
        self._measures.measure(Measuring(call, tuple(additions), now=self._there(now), is_more=True))

    def release(self, call: str, additions: Collection[Addition]) -> None:
        """Remove what a call added."""
        self._measures.measure(Measuring(call, tuple(additions), is_release=True))

    def close(self) -> None:
        """Close the connections."""
        self._reading.close()
        self._writing.close()


def _joined(one: _Stored, other: _Stored | None) -> _Stored:
    if other is None:
        return one
    at = one.at if other.at == _FOREVER else max(one.at, other.at)
    return _Stored(one.state.joined(other.state), at)
