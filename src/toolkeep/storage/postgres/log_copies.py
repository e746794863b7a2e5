"""Copies of the records and bodies of every server, in the PostgreSQL that they share.

A copy is encrypted under the servers' key and bound to its place: whoever has only the credential of the
database can remove copies, and neither read, change nor invent one. Readers compare records with the signed
checkpoints of their log all the same (`remote_log`): another server has the key, too.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from toolkeep.audit.errors import BodyState, BodyUnavailable
from toolkeep.audit.merkle_tree import HASH_BYTES
from toolkeep.limits import REFUSED_KEPT, REFUSED_KEPT_BYTES, REFUSED_KEPT_SECONDS
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.row_key import RowKey
from toolkeep.storage.sqlite.bodies_db import NONE_REFUSED

PART_ENTRIES: Final = 1_000
"""Entries that are copied as one part, at most: some 600 KB."""
BODY_BYTES: Final = 1 << 20
"""Larger bodies are not copied: they would hold up the records behind them."""
_NONCE_BYTES: Final = 12
"""As ChaCha20-Poly1305 takes."""

# A row for many entries: one for each took four times as long, here and in the database.
_PUT = """
WITH part AS (
    INSERT INTO shared_log_parts AS parts (origin, start, stop, leaves, lines) VALUES (%s, %s, %s, %b, %b)
    ON CONFLICT (origin, start) DO UPDATE
    SET stop = excluded.stop, leaves = excluded.leaves, lines = excluded.lines
    WHERE parts.stop < excluded.stop
    RETURNING origin
)
INSERT INTO shared_log_calls (call_id, other_id, origin, first, last)
SELECT said->>0, said->>1, origin, (said->>2)::bigint, (said->>3)::bigint
FROM part, json_array_elements(%s::json) AS calls (said) ON CONFLICT DO NOTHING
"""
_HELD = """
SELECT
    CASE WHEN min(start) = 0 THEN min(reach) FILTER (WHERE next IS NULL OR next > reach) ELSE 0 END,
    coalesce(max(reach), 0)
FROM (
    SELECT start, max(stop) OVER parts AS reach, lead(start) OVER parts AS next
    FROM shared_log_parts WHERE origin = %s WINDOW parts AS (ORDER BY start)
) AS parts
"""
_READ = """
SELECT start, stop, {} FROM shared_log_parts WHERE origin = %s AND start > %s AND stop > %s AND start < %s
ORDER BY start
"""
_CALLS = (
    "SELECT DISTINCT origin, call_id FROM shared_log_calls WHERE call_id LIKE %s LIMIT 100",
    "SELECT DISTINCT origin, call_id FROM shared_log_calls WHERE other_id LIKE %s LIMIT 100",
)
_OF_CALL = "SELECT first, last + 1 FROM shared_log_calls WHERE origin = %s AND call_id = %s ORDER BY first"
# All bodies are one parameter: psycopg takes six times as long for an array of them. Sorted: two servers that
# take the same rows in opposite orders would wait for each other.
_PUT_BODIES = """
INSERT INTO shared_bodies (digest, body, put_at, refused_by)
SELECT said->>0, substr(%b, (said->>1)::int, (said->>2)::int), now(), decode(said->>3, 'hex')
FROM json_array_elements(%s::json) AS bodies (said) ORDER BY 1
ON CONFLICT (digest) DO UPDATE SET put_at = now(),
    refused_by = CASE WHEN shared_bodies.refused_by IS NULL THEN NULL ELSE excluded.refused_by END
WHERE shared_bodies.body IS NOT NULL
"""
# The quota of each server's own bodies, for the copies of all servers together.
_PRUNE = """
DELETE FROM shared_bodies WHERE digest IN (
    SELECT digest FROM (
        SELECT digest, put_at, row_number() OVER newest AS number, sum(length(body)) OVER newest AS bytes
        FROM shared_bodies WHERE refused_by = ANY(%s)
        WINDOW newest AS (PARTITION BY refused_by ORDER BY put_at DESC, digest)
    ) AS kept WHERE number > %s OR bytes > %s
    UNION ALL
    SELECT digest FROM shared_bodies
    WHERE refused_by IS NOT NULL AND put_at < now() - %s * interval '1 second'
)
"""
_OLD_BODIES = """
SELECT digest FROM shared_bodies WHERE body IS NOT NULL AND put_at < now() - %s * interval '1 second'
"""
_COPIED = "SELECT digest FROM shared_bodies WHERE digest = ANY(%s) AND body IS NOT NULL"
# An erased body stays erased: a copy that comes late must not bring it back.
_ERASE = """
INSERT INTO shared_bodies (digest, put_at, erased_at, mac)
SELECT new.digest, now(), now(), new.mac FROM unnest(%s::text[], %s::bytea[]) AS new (digest, mac)
ON CONFLICT (digest) DO UPDATE SET body = NULL, erased_at = now(), mac = excluded.mac
"""
_ERASED = """
SELECT digest, extract(epoch FROM erased_at)::float8, mac FROM shared_bodies
WHERE erased_at > now() - %s * interval '1 second'
"""


class Said(msgspec.Struct, frozen=True):
    """What of a record names its call and its bodies. A tenth of the time of parsing all of it."""

    call: Any = ""
    correlation_id: Any = ""
    id: Any = ""
    has_arguments: Any = False
    argument_hash: Any = ""
    result_hash: Any = ""
    diagnosis_hash: Any = ""

    def bodies(self) -> list[str]:
        """The hashes of its bodies."""
        found = (self.has_arguments and self.argument_hash, self.result_hash, self.diagnosis_hash)
        return [str(digest) for digest in found if digest]


class _Line(msgspec.Struct, frozen=True):
    record: Said


_DECODE: Final = msgspec.json.Decoder(_Line).decode


def said_by(line: bytes) -> Said:
    """The names in the line of an entry."""
    return _DECODE(line).record


class FoundCall(NamedTuple):
    """A call in the log of some server."""

    origin: str
    call_id: str


class LogCopies:
    """The copies of all servers."""

    def __init__(self, database: SharedDatabase, key: bytes, rows: RowKey) -> None:
        """`key` encrypts copies; `rows` is that of rows that decide something."""
        self._database = database
        self._cipher = ChaCha20Poly1305(key)
        self._rows = rows

    def held(self, origin: str) -> tuple[int, int]:
        """The index of the first entry of a log that is not copied, and the index after the last that is."""
        ((end, last),) = self._rows_of(_HELD, origin)
        return int(end), int(last)

    def put(self, origin: str, start: int, lines: Sequence[bytes], leaves: Sequence[bytes]) -> list[Said]:
        """Copy entries of a log, unless they are; what each of them says."""
        stop = start + len(lines)
        said = [said_by(line) for line in lines]
        (sealed,) = self._sealed([(b"\n".join(lines), (origin, start, stop))])
        given = (origin, start, stop, b"".join(leaves), sealed, _calls(said, start))
        self._database.change(lambda made: made.execute(_PUT, given))
        return said

    def leaves(self, origin: str, start: int, stop: int) -> list[bytes]:
        """The leaf hashes from an index on, up to the first that is missing; nothing is verified."""
        found: list[bytes] = []
        for first, _, leaves in self._parts("leaves", origin, start, stop):
            if first > start + len(found):
                break
            split = [bytes(leaves[at : at + HASH_BYTES]) for at in range(0, len(leaves), HASH_BYTES)]
            found += split[start + len(found) - first : stop - first]
        return found

    def lines(self, origin: str, start: int, stop: int) -> list[tuple[int, bytes]]:
        """The entries with these indexes, as far as there are authentic copies."""
        found: dict[int, bytes] = {}
        for first, after, sealed in self._parts("lines", origin, start, stop):
            opened = self._opened(sealed, origin, first, after)
            for index, line in enumerate(opened.split(b"\n") if opened is not None else (), first):
                if start <= index < stop:
                    found.setdefault(index, line)
        return sorted(found.items())

    def _parts(self, column: str, origin: str, start: int, stop: int) -> list[Any]:
        """The parts that hold some of these entries."""
        return self._rows_of(_READ.format(column), origin, start - PART_ENTRIES, start, stop)

    def calls(self, given: str, *, is_prefix: bool) -> list[FoundCall]:
        """The calls with an id, or else a correlation or approval id, or a prefix of one."""
        # The id of the call first: callers choose correlation ids, and one could name another's call.
        for statement in _CALLS:
            rows = self._rows_of(statement, _literal(given) + ("%" if is_prefix else ""))
            if rows:
                return [FoundCall(*row) for row in rows if row[1]]
        return []

    def spans(self, call: FoundCall) -> list[tuple[int, int]]:
        """Indexes from and to which there are records of a call, among those of others."""
        return [(first, stop) for first, stop in self._rows_of(_OF_CALL, *call)]

    def put_bodies(self, bodies: Mapping[str, bytes], refused: Mapping[str, str] = NONE_REFUSED) -> None:
        """Copy bodies, except those that were erased; `refused` are the agents of refused calls' bodies."""
        # A MAC instead of its name: no row of the database shows which agents there are.
        marks = {digest: self._rows.mac("refused by", agent) for digest, agent in refused.items()}
        sealed = self._sealed([(body, ("body", digest)) for digest, body in bodies.items()])
        ends = accumulate(map(len, sealed), initial=1)
        rows = [
            (digest, at, len(one), marks[digest].hex() if digest in marks else None)
            for digest, at, one in zip(bodies, ends, sealed, strict=False)
        ]
        given = (b"".join(sealed), msgspec.json.encode(rows).decode())
        quota = (list(set(marks.values())), REFUSED_KEPT, REFUSED_KEPT_BYTES, REFUSED_KEPT_SECONDS)

        def work(made: Any) -> None:
            made.execute(_PUT_BODIES, given)
            if marks:
                made.execute(_PRUNE, quota)

        self._database.change(work)

    def body(self, digest: str) -> bytes:
        """A body by its hash; raises `BodyUnavailable`."""
        rows = self._rows_of("SELECT body FROM shared_bodies WHERE digest = %s", digest)
        if not rows:
            raise BodyUnavailable(digest, BodyState.MISSING)
        ((sealed,),) = rows
        if sealed is None:
            raise BodyUnavailable(digest, BodyState.ERASED)
        body = self._opened(sealed, "body", digest)
        if body is None or hashlib.sha256(body).hexdigest() != digest:
            raise BodyUnavailable(digest, BodyState.CHANGED)
        return body

    def erase(self, digests: Iterable[str]) -> list[str]:
        """Erase bodies here, and have every server erase its own; those of which there were copies."""
        named = sorted(set(digests))
        macs = [self._rows.mac("erased body", digest) for digest in named]

        def work(made: Any) -> list[str]:
            copied = made.execute(_COPIED, (named,)).fetchall()
            made.execute(_ERASE, (named, macs))
            return [digest for (digest,) in copied]

        return self._database.change(work)

    def older_than(self, age_s: float) -> list[str]:
        """The bodies that were last copied so long ago, by the database's clock."""
        return [digest for (digest,) in self._rows_of(_OLD_BODIES, age_s)]

    def erased_within(self, seconds: float) -> dict[str, float]:
        """The bodies that some server erased within the last seconds, and when."""
        # With a MAC: whoever has only the credential must not have bodies on the servers' disks erased.
        return {
            digest: at
            for digest, at, mac in self._rows_of(_ERASED, seconds)
            if self._rows.is_authentic(mac, "erased body", digest)
        }

    def _rows_of(self, statement: str, *values: object) -> list[Any]:
        found: list[Any] = self._database.change(lambda made: made.execute(statement, values).fetchall())
        return found

    def _sealed(self, items: "Sequence[tuple[bytes, tuple[str | int, ...]]]") -> list[bytes]:
        """Data, each bound to its place."""
        random, sealed = os.urandom(_NONCE_BYTES * len(items)), []
        for number, (data, place) in enumerate(items):
            nonce = random[number * _NONCE_BYTES : (number + 1) * _NONCE_BYTES]
            sealed.append(nonce + self._cipher.encrypt(nonce, data, repr(place).encode()))
        return sealed

    def _opened(self, sealed: bytes, *place: str | int) -> bytes | None:
        nonce, data = bytes(sealed[:_NONCE_BYTES]), bytes(sealed[_NONCE_BYTES:])
        try:
            return self._cipher.decrypt(nonce, data, repr(place).encode())
        except (InvalidTag, ValueError):  # of another length
            return None


def _calls(said: Sequence[Said], start: int) -> str:
    """The rows of calls: each id with each other one, and the first and last index of its records."""
    spans: dict[str, tuple[int, int]] = {}
    others: dict[str, set[str]] = {}
    for index, one in enumerate(said, start):
        if one.call:
            call = str(one.call)
            spans[call] = spans.get(call, (index,))[0], index
            if other := one.correlation_id or one.id:
                # A database takes no NUL in a text, and callers choose correlation ids.
                others.setdefault(call, set()).add(str(other).replace("\0", ""))
    rows = [(call, other, *span) for call, span in spans.items() for other in others.get(call, ("",))]
    return msgspec.json.encode(rows).decode()


def _literal(text: str) -> str:
    """A text as a pattern of LIKE that matches itself alone."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
