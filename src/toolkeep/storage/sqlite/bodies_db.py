"""Content-addressed arguments and results, by SHA-256, in `bodies.db` of the state folder (AUD-5).

The log holds only the hash, so a body can be erased and every proof stays valid. Comes in: bytes without
secrets. An erased body leaves a tombstone; nothing records who erased it.
"""

import hashlib
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolkeep.audit.errors import BodyState, BodyUnavailable
from toolkeep.errors import StateUnusable
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
_PRAGMAS = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON;"
_TABLES = """
CREATE TABLE bodies (digest TEXT PRIMARY KEY, put_at REAL NOT NULL, body BLOB) STRICT;
"""


class Bodies:
    """The bodies of one keep."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._database = Database(folder / "bodies.db", _PRAGMAS, _TABLES)
        self._clock = clock

    def put(self, body: bytes) -> str:
        """Store a body; its hash, in hex. An existing one gets a new time."""
        digest = hashlib.sha256(body).hexdigest()
        self.put_all({digest: body})
        return digest

    def put_all(self, bodies: Mapping[str, bytes]) -> None:
        """Store several in one transaction, each under its hash."""
        now = self._clock()
        rows = ((digest, now, body) for digest, body in bodies.items() if len(body) <= _PORTION_BYTES)
        with self._database.changing() as connection:
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

    def get(self, digest: str) -> bytes:
        """A body by its hash; raises `BodyUnavailable` where it was erased, is missing or was altered."""
        _check(digest)
        row = None
        if self._database.exists():
            with self._database.using() as connection:
                row = connection.execute("SELECT body FROM bodies WHERE digest = ?", (digest,)).fetchone()
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
        places = ", ".join("?" * len(digests))
        query = f"SELECT digest, body FROM bodies WHERE digest IN ({places}) AND length(body) <= ?"  # noqa: S608 -- our own words
        with self._database.using() as connection:
            rows = connection.execute(query, [*digests, most_bytes]).fetchall()
        return {digest: body for digest, body in rows if hashlib.sha256(body).hexdigest() == digest}

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
