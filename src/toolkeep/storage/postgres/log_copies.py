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
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.row_key import RowKey

BODY_BYTES: Final = 1 << 20
"""Larger bodies are not copied: they would hold up the records behind them."""
_NONCE_BYTES: Final = 12
"""As ChaCha20-Poly1305 takes."""

# All lines are one parameter: psycopg takes six times as long for an array of them.
_PUT = """
INSERT INTO shared_log_entries (origin, position, call_id, other_id, leaf, line)
SELECT %s, %s + at - 1, said->>0, said->>1, substr(%b, (at::int - 1) * 32 + 1, 32),
substr(%b, (said->>2)::int, (said->>3)::int)
FROM json_array_elements(%s::json) WITH ORDINALITY AS rows (said, at) ON CONFLICT DO NOTHING
"""
_HELD = "SELECT count(*), coalesce(max(position) + 1, 0) FROM shared_log_entries WHERE origin = %s"
_LEAVES = """
SELECT position, leaf FROM shared_log_entries WHERE origin = %s AND position >= %s AND position < %s
ORDER BY position
"""
_READ = """
SELECT position, line FROM shared_log_entries WHERE origin = %s AND position >= %s AND position < %s
ORDER BY position
"""
_CALLS = (
    "SELECT DISTINCT origin, call_id FROM shared_log_entries WHERE call_id LIKE %s LIMIT 100",
    "SELECT DISTINCT origin, call_id FROM shared_log_entries WHERE other_id LIKE %s LIMIT 100",
)
_OF_CALL = "SELECT position FROM shared_log_entries WHERE origin = %s AND call_id = %s ORDER BY position"
_PUT_BODIES = """
INSERT INTO shared_bodies (digest, body, put_at)
SELECT *, now() FROM unnest(%s::text[], %s::bytea[]) ON CONFLICT (digest) DO UPDATE SET put_at = now()
WHERE shared_bodies.body IS NOT NULL
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
        """How many entries of a log are copied, and the index after the last one."""
        ((count, end),) = self._rows_of(_HELD, origin)
        return int(count), int(end)

    def put(self, origin: str, start: int, lines: Sequence[bytes], leaves: Sequence[bytes]) -> None:
        """Copy entries of a log, unless they are."""
        sealed = [self._sealed(line, origin, index) for index, line in enumerate(lines, start)]
        ends = list(accumulate(map(len, sealed), initial=1))
        rows = [
            # A database takes no NUL in a text, and callers choose correlation ids.
            (str(said.call), str(said.correlation_id or said.id).replace("\0", ""), end, len(line))
            for said, end, line in zip(map(said_by, lines), ends, sealed, strict=False)
        ]
        given = (origin, start, b"".join(leaves), b"".join(sealed), msgspec.json.encode(rows).decode())
        self._database.change(lambda made: made.execute(_PUT, given))

    def leaves(self, origin: str, start: int, stop: int) -> list[bytes]:
        """The leaf hashes from an index on, up to the first that is missing; nothing is verified."""
        rows = self._rows_of(_LEAVES, origin, start, stop)
        return [bytes(leaf) for index, (position, leaf) in enumerate(rows, start) if index == position]

    def lines(self, origin: str, start: int, stop: int) -> list[tuple[int, bytes]]:
        """The entries with these indexes, as far as there are authentic copies."""
        rows = self._rows_of(_READ, origin, start, stop)
        opened = ((position, self._opened(line, origin, position)) for position, line in rows)
        return [(position, line) for position, line in opened if line is not None]

    def calls(self, given: str, *, is_prefix: bool) -> list[FoundCall]:
        """The calls with an id, or else a correlation or approval id, or a prefix of one."""
        # The id of the call first: callers choose correlation ids, and one could name another's call.
        for statement in _CALLS:
            rows = self._rows_of(statement, _literal(given) + ("%" if is_prefix else ""))
            if rows:
                return [FoundCall(*row) for row in rows if row[1]]
        return []

    def positions(self, call: FoundCall) -> list[int]:
        """The indexes of the records of a call."""
        return [position for (position,) in self._rows_of(_OF_CALL, *call)]

    def put_bodies(self, bodies: Mapping[str, bytes]) -> None:
        """Copy bodies, except those that were erased."""
        sealed = [self._sealed(body, "body", digest) for digest, body in bodies.items()]
        self._database.change(lambda made: made.execute(_PUT_BODIES, (list(bodies), sealed)))

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

    def _sealed(self, data: bytes, *place: str | int) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, data, repr(place).encode())

    def _opened(self, sealed: bytes, *place: str | int) -> bytes | None:
        nonce, data = bytes(sealed[:_NONCE_BYTES]), bytes(sealed[_NONCE_BYTES:])
        try:
            return self._cipher.decrypt(nonce, data, repr(place).encode())
        except (InvalidTag, ValueError):  # of another length
            return None


def _literal(text: str) -> str:
    """A text as a pattern of LIKE that matches itself alone."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
