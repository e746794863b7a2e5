"""What servers on one PostgreSQL hear of each other's changes, and how soon."""

import contextlib
import queue
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.storage.cluster import Cluster
from toolkeep.storage.postgres.shared_changes import SharedChanges, announce
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.sql.database_location import PostgresLocation


@contextlib.contextmanager
def server(port: int) -> Iterator[tuple[SharedDatabase, SharedChanges, "queue.Queue[str]"]]:
    """A server and what it hears about questions."""
    database = SharedDatabase(PostgresLocation(f"postgresql://keep@127.0.0.1:{port}/made"), is_single=True)
    changes, heard = SharedChanges(database, "server"), queue.Queue[str]()
    changes.watch("questions", heard.put)
    try:
        yield database, changes, heard
    finally:
        changes.close()
        database.close()


def undone(connection: Any) -> None:
    """A change that is announced and then not made."""
    announce(connection, "questions", "undone")
    raise ZeroDivisionError


@pytest.mark.spec("SCL-2")
def test_a_change_is_heard_by_every_watcher_of_its_topic_once_it_is_committed(postgres: Cluster) -> None:
    postgres.clean()
    with server(postgres.port) as (_, changes, heard), server(postgres.port) as (other, _, _):
        assert heard.get(timeout=60) == ""  # connected: anything may have changed
        assert changes.is_current
        with contextlib.suppress(ZeroDivisionError):
            other.change(undone)
        other.change(lambda connection: announce(connection, "rules", "another topic"))
        other.change(lambda connection: announce(connection, "questions", "q 1"))
        said = [heard.get(timeout=60) for _ in range(2)]
        assert next(key for key in said if key) == "q 1"
        looks = iter(range(10))
        while changes.servers != 2 and next(looks) < 9:
            heard.get(timeout=60)  # once a second
        assert changes.servers == 2


def test_what_was_announced_while_the_database_was_away_is_looked_for_afterwards(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkeep.storage.postgres.shared_changes._EVERY_SECONDS", 3600.0)
    postgres.clean()
    with server(postgres.port) as (_, changes, heard):
        assert heard.get(timeout=60) == ""
        postgres.stop()
        until = time.monotonic() + 60
        while changes.is_current and time.monotonic() < until:
            time.sleep(0.01)
        assert not changes.is_current
        postgres.start()
        assert heard.get(timeout=60) == ""
        assert changes.is_current


def test_notices_of_any_form_and_number_are_borne(postgres: Cluster) -> None:
    """Any user of the database can send them, also one who may read no table."""
    postgres.clean()
    with server(postgres.port) as (database, _, heard):
        assert heard.get(timeout=60) == ""
        for payload in ("x", "", " ", "questions"):
            postgres.execute("made", f"NOTIFY toolkeep_shared, '{payload}'")
        flood = "PERFORM pg_notify('toolkeep_shared', 'questions flood'); COMMIT"
        postgres.execute("made", f"DO $$ BEGIN FOR n IN 1..2000 LOOP {flood}; END LOOP; END $$")
        database.change(lambda connection: announce(connection, "questions", "q"))
        said = iter(lambda: heard.get(timeout=60), "q")
        assert sum(key == "flood" for key in said) < 1000


def test_a_watcher_that_fails_or_left_disturbs_nobody(postgres: Cluster) -> None:
    postgres.clean()
    with server(postgres.port) as (database, changes, heard):
        changes.watch("questions", lambda _: 1 / 0)
        left = queue.Queue[str]()
        changes.watch("questions", left.put)()
        while heard.get(timeout=60) != "q":
            database.change(lambda connection: announce(connection, "questions", "q"))
        assert left.empty()
