"""The connection of one server to the PostgreSQL that it shares with others.

A change whose connection breaks may have been made or not, and reading cannot tell: a commit that waits for a
standby is not visible yet. So each change is written to be repeated, with a token of its own in the row, and
is repeated on a new connection. Once the repeated change is acknowledged, the first one is replicated, too.
Nothing here cancels a statement: a cancelled wait for the standby would look like a commit.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from toolkeep.errors import StoreUnavailable
from toolkeep.host.after_fork import register_after_fork
from toolkeep.storage.sql.database_location import SCHEMA, PostgresLocation
from toolkeep.storage.sql.definition_reader import check_layout, find_layout

Result = TypeVar("Result")

_PATIENCE_SECONDS: Final = 5.0
"""How long a change is repeated while the database is away; a failover often takes less."""
_ANSWER_SECONDS: Final = 3.0
"""How long an answer is waited for. A commit waits without end for a standby that is gone."""
_PAUSES_SECONDS: Final = (0.0, 0.05, 0.2)
"""Before a first, second and every later repetition."""
_CLOCK_SECONDS: Final = 300.0
"""How far the clock of the database may be from that of a server; with NTP it is less than one."""
_LOCK_MS: Final = 2_000
"""How long a statement waits for the row of a transaction whose outcome is open."""


class ServerId:
    """Names a process among all that share a database."""

    def __init__(self) -> None:
        self.text = secrets.token_hex(8)
        register_after_fork(self)

    def leave_to_parent(self) -> None:
        """After fork(), in the child: another server."""
        self.text = secrets.token_hex(8)


class History(Protocol):
    """Notices a database that was restored from a backup."""

    def count(self, connection: Any, place: str) -> int:
        """As part of a transaction; raises where the database is older than before."""
        ...

    def remember(self, version: int) -> None:
        """That transaction was committed."""
        ...


class SharedDatabase:
    """One connection for changes, which one thread at a time uses."""

    def __init__(
        self,
        place: PostgresLocation,
        *,
        is_single: bool = False,
        server: "ServerId | None" = None,
        history: "History | None" = None,
    ) -> None:
        """`is_single`: the operator says that there is no replica, so nothing is lost by a failover.

        `server` and `history` are the same for all connections of a server.
        """
        self.place = place
        self._server = server or ServerId()
        self._is_single = is_single
        self._history = history
        self._lock = threading.Lock()
        self._connection: Any = None
        self._has_tables = False
        self._is_closed = False
        self._is_away = False
        """Whether the last change failed: the next ones are tried once, and wait for nothing."""
        register_after_fork(self)

    @property
    def server(self) -> str:
        """This server, among all that share the database."""
        return self._server.text

    def change(self, work: Callable[[Any], Result], *, patience_s: float | None = None) -> Result:
        """Run a transaction, and run it again where its answer was lost; `work` must bear that.

        `patience_s` is how long it is repeated. Raises `StoreUnavailable`: then whether the change was made
        is not known.
        """
        if self._history is None:
            return self.read(lambda connection: _transaction(connection, work), patience_s=patience_s)
        count = partial(self._history.count, place=self.place.shown)
        counted, done = self.read(
            lambda connection: _transaction(connection, lambda one: (count(one), work(one))),
            patience_s=patience_s,
        )
        self._history.remember(counted)
        return done

    def read(self, work: Callable[[Any], Result], *, patience_s: float | None = None) -> Result:
        """Run statements that change nothing, outside of a transaction; again where an answer was lost."""
        with self._lock:
            patience_s = _PATIENCE_SECONDS if patience_s is None else patience_s
            until, tried = time.monotonic() + (0.0 if self._is_away else patience_s), 0
            while True:
                try:
                    done = work(self._connected())
                except self.place.failures() as error:
                    if not self._may_repeat(error) or time.monotonic() > until:
                        self._is_away = True
                        self._let_go()
                        raise self.place.refuse(error) from error
                else:
                    self._is_away = False
                    return done
                time.sleep(_PAUSES_SECONDS[min(tried, len(_PAUSES_SECONDS) - 1)])
                tried += 1

    def check_clock(self, ahead_s: float) -> None:
        """Raise where the clocks of this server and the database are too far apart.

        Who sets back the time of the database brings back approvals that have ended; who sets it forward
        ends sessions, with all that they have seen, and the windows of measures.
        """
        if not abs(ahead_s) <= _CLOCK_SECONDS:  # so written, it refuses what is no number, too
            reason = f"its clock and that of this server differ by {ahead_s:.0f} s"
            raise StoreUnavailable(self.place.shown, reason, hint="set the clocks of both, such as with NTP")

    def close(self) -> None:
        """Close the connection, for good: a thread that comes late must not open another."""
        with self._lock:
            self._is_closed = True
            self._let_go()

    def leave_to_parent(self) -> None:
        """After fork(), in the child: the connection is the parent's."""
        self._lock = threading.Lock()
        _INHERITED.append(self._connection)
        self._connection = None

    def connect(self, *, answer_s: float) -> Any:
        """A connection of its own to a database that may be used; closed where an answer takes longer."""
        connection = self.place.connect(answer_s=answer_s)
        try:
            connection.execute(f"SET search_path = {SCHEMA}")
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connected(self) -> Any:
        if self._connection is None or self._connection.closed:
            if self._is_closed:
                raise StoreUnavailable(self.place.shown, "it was closed", hint="open the keep again")
            connection = self.connect(answer_s=_ANSWER_SECONDS)
            try:
                if not self._has_tables:
                    self._make_tables(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _check(self, connection: Any) -> None:
        """Raise where a failover could lose what was acknowledged."""
        connection.execute(f"SET lock_timeout = {_LOCK_MS}")
        connection.execute("SET statement_timeout = 0")  # its cancellation would end the wait for a standby
        connection.execute("SET synchronous_commit = on")
        (standbys,) = connection.execute("SELECT current_setting('synchronous_standby_names')").fetchone()
        if not standbys and not self._is_single:
            hint = (
                "set synchronous_standby_names in PostgreSQL; where this database has no replica, "
                "say so with database.single"
            )
            raise StoreUnavailable(self.place.shown, "it does not replicate synchronously", hint=hint)

    def _make_tables(self, connection: Any) -> None:
        """Check the schema; the first server to come migrates it."""
        if not check_layout(self.place, find_layout(self.place, connection)):
            from toolkeep.storage.sql.engine import make_engine
            from toolkeep.storage.sql.schema_migration import migrate

            engine = make_engine(self.place)
            try:
                migrate(engine, self.place)
            finally:
                engine.dispose()
        self._has_tables = True

    def _may_repeat(self, error: BaseException) -> bool:
        """Whether a failure says nothing about the change: a lost connection, a failover, a deadlock."""
        from psycopg import OperationalError, errors

        if isinstance(error, errors.LockNotAvailable):
            return False  # another transaction has the row, and its outcome is open
        is_lost = self._connection is None or self._connection.closed
        if isinstance(error, errors.ReadOnlySqlTransaction):
            self._let_go()  # a standby now; another of the hosts in the URL is not
            return True
        return is_lost or isinstance(error, OperationalError)

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _transaction(connection: Any, work: Callable[[Any], Result]) -> Result:
    with connection.pipeline(), connection.transaction():
        return work(connection)


def columns(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as the arrays that `unnest` takes."""
    return [list(column) for column in zip(*rows, strict=True)]


_INHERITED: list[Any] = []
"""Referenced, so that they are never closed: the socket is the parent's, too."""
