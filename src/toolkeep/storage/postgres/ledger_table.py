"""The idempotency ledger of servers that share a PostgreSQL.

A claim names its call and its server. Of calls with one key, through any servers, one makes the claim. A
claim without a result whose server has not been seen for a while has an unknown outcome.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from toolkeep.errors import StoreUnavailable
from toolkeep.execution.idempotency import IdempotentResult
from toolkeep.host.after_fork import register_after_fork
from toolkeep.storage.group_commit import GroupCommit
from toolkeep.storage.postgres.shared_changes import IS_ALIVE
from toolkeep.storage.postgres.shared_database import SharedDatabase, columns
from toolkeep.storage.row_key import RowKey

_LATE: Final = 10_000
"""Changes that could not be made and wait for the database to come back."""

_LOCK = "SELECT FROM shared_claims WHERE key = ANY(%s) ORDER BY key FOR UPDATE"
_FINISH = """
UPDATE shared_claims AS claims SET result = new.result, mac = new.mac
FROM unnest(%s::text[], %s::text[], %s::bytea[], %s::bytea[]) AS new (key, call_id, result, mac)
WHERE claims.key = new.key AND claims.call_id = new.call_id
"""
_RELEASE = """
DELETE FROM shared_claims AS claims USING unnest(%s::text[], %s::text[]) AS over (key, call_id)
WHERE claims.key = over.key AND claims.call_id = over.call_id AND result IS NULL
"""
# The update changes nothing, but is replicated: an answer to a repeated claim says that the first one was.
# Sorted: two servers that take the same keys in opposite orders would wait for each other.
_CLAIM = """
INSERT INTO shared_claims AS claims (key, call_id, argument_hash, server)
SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[]) ORDER BY 1
ON CONFLICT (key) DO UPDATE SET key = excluded.key
WHERE claims.call_id = excluded.call_id AND claims.result IS NULL
RETURNING key
"""
_HELD = f"""
SELECT key, call_id, argument_hash, result, mac, coalesce({IS_ALIVE}, false)
FROM shared_claims LEFT JOIN shared_servers ON shared_servers.id = server
WHERE key = ANY(%s)
"""  # noqa: S608 -- our own words


class Claiming(NamedTuple):
    """A claim to be made."""

    key: str
    call_id: str
    argument_hash: str


class Finishing(NamedTuple):
    """A result to be stored."""

    key: str
    call_id: str
    argument_hash: str
    result: bytes


class Releasing(NamedTuple):
    """A claim to be removed."""

    key: str
    call_id: str


Change = Claiming | Finishing | Releasing


class PostgresLedger:
    """The claims of all servers of one keep."""

    def __init__(
        self, database: SharedDatabase, key: RowKey, appear: Callable[[], None] = lambda: None
    ) -> None:
        """`appear` is called before the first claim: others must see that this server lives."""
        self._database = database
        self._key = key
        self._appear = appear
        self._late: list[Change] = []
        self._lock = threading.Lock()
        self._changes: GroupCommit[Change, IdempotentResult | None] = GroupCommit(self._change, quick_s=0.0)
        register_after_fork(self)

    async def claim(self, key: str, call_id: str, argument_hash: str) -> IdempotentResult | None:
        """None if this call claimed the key, durably; otherwise the earlier claim."""
        self._appear()
        return await self._changes.put(Claiming(key, call_id, argument_hash))

    async def finish(self, key: str, call_id: str, argument_hash: str, result: bytes) -> None:
        """Store the result of a claimed call."""
        await self._changes.put(Finishing(key, call_id, argument_hash, result))

    async def release(self, key: str, call_id: str) -> None:
        """Remove the claim of a call: nothing was run. A result, or a claim of another call, stays."""
        await self._changes.put(Releasing(key, call_id))

    def close(self) -> None:
        """Try once more to settle what waits; without the database, its outcome is unknown to the others."""
        if self._late:
            with contextlib.suppress(StoreUnavailable):
                self._change(())

    def leave_to_parent(self) -> None:
        """After fork(), in the child: what waits is the parent's to settle."""
        self._late, self._lock = [], threading.Lock()

    def _change(self, changes: Sequence[Change]) -> list[IdempotentResult | None]:
        with self._lock:
            late, self._late = self._late, []
        try:
            held = self._database.change(lambda connection: self._made(connection, [*late, *changes]))
        except StoreUnavailable:
            # Whether they were made is not known: settled when the database is back.
            left = [Releasing(one.key, one.call_id) if type(one) is Claiming else one for one in changes]
            with self._lock:
                self._late = [*late, *left][:_LATE]
            raise
        return [held.get(change.call_id) for change in changes]

    def _made(self, connection: Any, changes: Sequence[Change]) -> dict[str, IdempotentResult]:
        """Make all changes; the earlier claim by the id of each call that made none."""
        finished = {one.key: one for one in changes if type(one) is Finishing}
        released = [one for one in changes if type(one) is Releasing]
        if finished or released:
            keys = [*finished, *(one.key for one in released)]
            connection.execute(_LOCK, (keys,))
        if finished:
            rows = [
                (one.key, one.call_id, one.result, self._key.mac("claim", *one)) for one in finished.values()
            ]
            connection.execute(_FINISH, columns(rows))
        if released:
            connection.execute(_RELEASE, columns(released))
        claims = [one for one in changes if type(one) is Claiming]
        return self._claimed(connection, claims) if claims else {}

    def _claimed(self, connection: Any, claims: Sequence[Claiming]) -> dict[str, IdempotentResult]:
        # One statement cannot take a row twice: of equal keys the first call claims for itself.
        first = {one.key: one for one in reversed(claims)}
        rows = [(*one, self._database.server) for one in first.values()]
        won = {key for (key,) in connection.execute(_CLAIM, columns(rows))}
        lost = [one for one in claims if one.key not in won or first[one.key] is not one]
        if not lost:
            return {}
        found = {row[0]: row for row in connection.execute(_HELD, ([one.key for one in lost],))}
        return {one.call_id: self._earlier(*found[one.key]) for one in lost}

    def _earlier(
        self,
        key: str,
        call_id: str,
        argument_hash: str,
        result: bytes | None,
        mac: bytes | None,
        is_seen: bool,  # noqa: FBT001 -- a column
    ) -> IdempotentResult:
        if result is None:
            return IdempotentResult(state="running" if is_seen else "unknown", argument_hash=argument_hash)
        if not self._key.is_authentic(mac, "claim", key, call_id, argument_hash, result):
            return IdempotentResult(state="unknown", argument_hash=argument_hash)
        return IdempotentResult(state="done", argument_hash=argument_hash, result=result)
