"""A fork of a process that uses a database has connections and locks of its own."""

import contextlib
import os
import select
import signal
from collections.abc import Callable
from pathlib import Path

from tests.storage.cluster import Cluster
from toolkeep.storage.sql.change_feed import ChangeFeed
from toolkeep.storage.sql.database_location import PostgresLocation, SqliteLocation
from toolkeep.storage.sql.definition_store import SqlDefinitionStore
from toolkeep.storage.sql.definition_writer import DefinitionWriter
from toolkeep.storage.sql.engine import changing


def in_a_fork(work: Callable[[], int]) -> int:
    """What a child of this process works out."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            os.write(writable, str(work()).encode())
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(writable)
    with open(readable) as file:  # noqa: PTH123 -- a descriptor
        return int(file.read())


def test_a_fork_has_connections_of_its_own(postgres: Cluster) -> None:
    place = PostgresLocation(postgres.clean())
    with contextlib.closing(DefinitionWriter(place)) as used:

        def server_process() -> int:
            with changing(used._engine, place) as connection:
                return int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())

        own = server_process()
        assert in_a_fork(server_process) != own
        assert server_process() == own


def test_a_fork_waits_for_no_thread_of_its_parent(tmp_path: Path) -> None:
    place = SqliteLocation(tmp_path / "state")
    store = SqlDefinitionStore(place)
    with store._lock:  # as a thread may hold that the child does not have
        assert in_a_fork(lambda: len([store._writing()])) == 1
    store.close()


def test_a_fork_that_closes_its_follower_leaves_that_of_its_parent_asleep(tmp_path: Path) -> None:
    follower = ChangeFeed(SqliteLocation(tmp_path / "state"), lambda: None, lambda _: None)

    def close() -> int:
        follower.close()
        return 1

    assert in_a_fork(close) == 1
    assert select.select([follower._wake[0]], [], [], 0)[0] == []
    follower.close()
    with open(os.devnull) as file:  # noqa: PTH123 -- it takes the number of what was closed
        assert in_a_fork(lambda: os.fstat(file.fileno()).st_nlink) == 1
