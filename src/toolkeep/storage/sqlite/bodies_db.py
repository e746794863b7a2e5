"""Content-addressed arguments and results, by SHA-256, in `bodies.db` of the state folder (AUD-5).

The log holds only the hash, so a body can be erased and every proof stays valid. Comes in: bytes without
secrets. An erased body leaves a tombstone; nothing records who erased it. Bodies of refused and failed calls
are dropped after seven days, and earlier where their agent has newer ones than its quota.
"""

import hashlib
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from toolkeep.audit.errors import BodyState, BodyUnavailable
from toolkeep.errors import StateUnusable
from toolkeep.limits import REFUSED_KEPT, REFUSED_KEPT_BYTES, REFUSED_KEPT_SECONDS, REFUSED_TOTAL_BYTES
from toolkeep.storage.sqlite.database import Database

if TYPE_CHECKING:
    import sqlite3

_DIGEST = re.compile(r"[0-9a-f]{64}")
_ROWS: Final = 256
"""How many bodies one statement inserts."""
_PORTION_BYTES: Final = 1 << 20
"""How much of a large body is written at once: SQLite would copy a parameter twice."""

# One database: a file for each body took ten times as long. synchronous = NORMAL: a crash of the machine may
# lose the newest bodies, never a record. secure_delete: otherwise an erased body stays in free pages.
# The second table came later, and files without it stay readable by everyone.
_PRAGMAS = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON;
CREATE TABLE IF NOT EXISTS refused (
    digest TEXT PRIMARY KEY, agent TEXT NOT NULL, put_at REAL NOT NULL, size INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS refused_by_agent ON refused (agent, put_at);
"""
NONE_REFUSED: Final[Mapping[str, str]] = MappingProxyType({})
_TABLES = """
CREATE TABLE bodies (digest TEXT PRIMARY KEY, put_at REAL NOT NULL, body BLOB) STRICT;
"""

_PRUNED_SECONDS: Final = 1.0
_IDLE_PRUNED_SECONDS: Final = 3_600.0
"""How often the quotas are checked, and while no call is refused, how often expired bodies are looked for."""
_OVER_QUOTA: Final = """
SELECT digest FROM (
    SELECT digest, row_number() OVER newest AS number, sum(size) OVER newest AS bytes
    FROM refused WHERE agent = ? WINDOW newest AS (ORDER BY put_at DESC, rowid DESC)
) WHERE number > ? OR bytes > ?
"""
_OVER_TOTAL: Final = """
SELECT digest FROM (SELECT digest, sum(size) OVER (ORDER BY put_at DESC, rowid DESC) AS bytes FROM refused
WHERE (SELECT sum(size) FROM refused) > ?)
WHERE bytes > ?
"""


class Bodies:
    """The bodies of one keep."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._database = Database(folder / "bodies.db", _PRAGMAS, _TABLES)
        self._clock = clock
        self._pruned_at = -math.inf
        self._unpruned: set[str] = set()
        """Agents that may have more than their quota."""
        self._unpruned_bytes = 0

    def put(self, body: bytes) -> str:
        """Store a body; its hash, in hex. An existing one gets a new time."""
        digest = hashlib.sha256(body).hexdigest()
        self.put_all({digest: body})
        return digest

    def put_all(self, bodies: Mapping[str, bytes], refused: Mapping[str, str] = NONE_REFUSED) -> None:
        """Store several in one transaction, each under its hash; `refused` are the agents of some.

        These are kept for a while, unless another call has the same body.
        """
        now = self._clock()
        rows = ((digest, now, body) for digest, body in bodies.items() if len(body) <= _PORTION_BYTES)
        with self._database.changing() as connection:
            _note_refused(connection, bodies, refused, now)
            for digest, body in bodies.items():
                if len(body) > _PORTION_BYTES:
                    _write_large(connection, digest, now, body)
            # One statement for each would take the GIL from the calls once for each.
            while some := list(islice(rows, _ROWS)):
                places = ", ".join(["(?, ?, ?)"] * len(some))
                connection.execute(
                    f"INSERT INTO bodies VALUES {places} ON CONFLICT DO UPDATE "  # noqa: S608 -- our own words
                    "SET put_at = excluded.put_at, body = coalesce(body, excluded.body)",
                    list(chain.from_iterable(some)),
                )
            if self._is_due(bodies, refused, now):
                _prune(connection, self._unpruned, now)
                self._pruned_at, self._unpruned, self._unpruned_bytes = now, set(), 0

    def _is_due(self, bodies: Mapping[str, bytes], refused: Mapping[str, str], now: float) -> bool:
        """Whether to look for what is over a quota: not for every batch of a flood."""
        self._unpruned |= set(refused.values())
        self._unpruned_bytes += sum(len(bodies[digest]) for digest in refused)
        every_s = _PRUNED_SECONDS if self._unpruned else _IDLE_PRUNED_SECONDS
        return self._unpruned_bytes > REFUSED_KEPT_BYTES or now - self._pruned_at >= every_s

    def get(self, digest: str) -> bytes:
        """A body by its hash; raises `BodyUnavailable` where it was erased, is missing or was altered."""
        _check(digest)
        row = None
        if self._database.exists():
            with self._database.using() as connection:
                row = connection.execute(_KEPT, (digest, self._clock() - REFUSED_KEPT_SECONDS)).fetchone()
        if row is None:
            raise BodyUnavailable(digest, BodyState.MISSING)
        body: bytes | None = row[0]
        if body is None:
            raise BodyUnavailable(digest, BodyState.ERASED)
        if hashlib.sha256(body).hexdigest() != digest:
            raise BodyUnavailable(digest, BodyState.CHANGED)
        return body

    def get_all(self, digests: Sequence[str], *, most_bytes: int) -> dict[str, bytes]:
        """Those of some bodies that are there, unaltered and not longer."""
        if not digests or not self._database.exists():
            return {}
        query = f"SELECT digest, body FROM bodies WHERE digest IN ({_places(digests)}) AND length(body) <= ?"  # noqa: S608 -- our own words
        with self._database.using() as connection:
            rows = connection.execute(query, [*digests, most_bytes]).fetchall()
        return {digest: body for digest, body in rows if hashlib.sha256(body).hexdigest() == digest}

    def sizes(self, digests: Sequence[str]) -> dict[str, int]:
        """How many bytes each of some bodies has; SQLite knows it without reading them."""
        if not digests or not self._database.exists():
            return {}
        query = f"SELECT digest, length(body) FROM bodies WHERE digest IN ({_places(digests)})"  # noqa: S608 -- our own words
        with self._database.using() as connection:
            rows = connection.execute(query, list(digests)).fetchall()
        return {digest: size for digest, size in rows if size is not None}

    def refusers(self, digests: Sequence[str]) -> dict[str, str]:
        """The agents of those bodies that are kept for a while only."""
        if not digests or not self._database.exists():
            return {}
        query = f"SELECT digest, agent FROM refused WHERE digest IN ({_places(digests)})"  # noqa: S608 -- our own words
        with self._database.using() as connection:
            return dict(connection.execute(query, digests).fetchall())

    def erase(self, digest: str, *, before: float = math.inf) -> bool:
        """Erase a body last stored before a time, leaving a tombstone; whether there was one.

        Raises `StateUnusable` while another connection reads: the bytes are still in the write-ahead log.
        """
        _check(digest)
        return bool(self._erase("digest = ? AND put_at < ?", digest, before))

    def erase_older(self, than: float) -> list[str]:
        """Erase the bodies last stored before this time, in POSIX seconds; their hashes."""
        return self._erase("put_at < ?", than)

    def _erase(self, which: str, *values: str | float) -> list[str]:
        if not self._database.exists():
            return []
        with self._database.using() as connection:
            erased = connection.execute(
                f"UPDATE bodies SET body = NULL WHERE {which} AND body IS NOT NULL RETURNING digest",  # noqa: S608 -- our own words
                values,
            ).fetchall()
            _drop_notes(connection, [digest for (digest,) in erased])
            # The old pages are in the write-ahead log, too: a checkpoint that truncates it removes them.
            (is_read, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if is_read:
            hint = "erase again later; a backup that reads it may take a while"
            raise StateUnusable(
                str(self._database.file),
                "is being read, so erased data is still in its journal",
                hint=hint,
            )
        return sorted(digest for (digest,) in erased)

    def close(self) -> None:
        """Close the file."""
        self._database.close()


_KEPT: Final = """
SELECT body FROM bodies WHERE digest = ?
AND NOT EXISTS (SELECT 1 FROM refused WHERE refused.digest = bodies.digest AND refused.put_at < ?)
"""


def _note_refused(
    connection: "sqlite3.Connection", bodies: Mapping[str, bytes], refused: Mapping[str, str], now: float
) -> None:
    """Note which new bodies are kept for a while; what a call that passed has, too, is not."""
    _drop_notes(connection, [digest for digest in bodies if digest not in refused])
    rows = ((digest, agent, now, len(bodies[digest])) for digest, agent in refused.items())
    while some := list(islice(rows, _ROWS)):
        places = ", ".join(["(?, ?, ?, ?)"] * len(some))
        connection.execute(
            f"WITH new (digest, agent, put_at, size) AS (VALUES {places}) "  # noqa: S608 -- our own words
            "INSERT INTO refused SELECT * FROM new "
            "WHERE NOT EXISTS (SELECT 1 FROM bodies WHERE bodies.digest = new.digest AND body IS NOT NULL) "
            "OR EXISTS (SELECT 1 FROM refused WHERE refused.digest = new.digest) "
            "ON CONFLICT DO UPDATE SET agent = excluded.agent, put_at = excluded.put_at",
            list(chain.from_iterable(some)),
        )


def _drop_notes(connection: "sqlite3.Connection", digests: Sequence[str]) -> None:
    for start in range(0, len(digests), _ROWS):
        some = digests[start : start + _ROWS]
        connection.execute(f"DELETE FROM refused WHERE digest IN ({_places(some)})", some)  # noqa: S608 -- our own words


def _prune(connection: "sqlite3.Connection", agents: set[str], now: float) -> None:
    """Drop the bodies of refused calls that are too old, or beyond the quota of these agents."""
    old = "SELECT digest FROM refused WHERE put_at < ?"
    for query, values in (
        (old, (now - REFUSED_KEPT_SECONDS,)),
        *((_OVER_QUOTA, (agent, REFUSED_KEPT, REFUSED_KEPT_BYTES)) for agent in agents),
        (_OVER_TOTAL, (REFUSED_TOTAL_BYTES, REFUSED_TOTAL_BYTES)),
    ):
        dropped = [digest for (digest,) in connection.execute(query, values).fetchall()]
        for start in range(0, len(dropped), _ROWS):
            some = dropped[start : start + _ROWS]
            connection.execute(f"DELETE FROM bodies WHERE digest IN ({_places(some)})", some)  # noqa: S608 -- our own words
        _drop_notes(connection, dropped)


def _places(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


def _write_large(connection: "sqlite3.Connection", digest: str, now: float, body: bytes) -> None:
    """Write a body in portions, unless it is there."""
    connection.execute(
        "INSERT INTO bodies VALUES (?, ?, NULL) ON CONFLICT DO UPDATE SET put_at = excluded.put_at",
        (digest, now),
    )
    empty = "SELECT rowid FROM bodies WHERE digest = ? AND body IS NULL"
    for (row,) in connection.execute(empty, (digest,)).fetchall():
        connection.execute("UPDATE bodies SET body = zeroblob(?) WHERE rowid = ?", (len(body), row))
        with connection.blobopen("bodies", "body", row) as written:
            for start in range(0, len(body), _PORTION_BYTES):
                written.write(body[start : start + _PORTION_BYTES])


def _check(digest: str) -> None:
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"{digest!r} is not a SHA-256 in hex")
