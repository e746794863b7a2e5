"""One SQLite file, shared by threads and processes, from its first moment on."""

import contextlib
import os
import signal
import sqlite3
from pathlib import Path

import pytest

from toolkeep.errors import StateUnusable
from toolkeep.storage.database import Database

SCRIPT = "PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS words (word TEXT) STRICT;"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path / "words.db"


class Hurried(sqlite3.Connection):
    """Two connections that change the journal mode at once: SQLite lets one give up without waiting."""

    refusals = 2

    def executescript(self, script: str) -> sqlite3.Cursor:
        if Hurried.refusals:
            Hurried.refusals -= 1
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorname = "SQLITE_BUSY"
            raise error
        return super().executescript(script)


def test_whoever_opens_it_while_another_makes_it_tries_again(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **more: genuine(*args, factory=Hurried, **more))
    database = Database(file, SCRIPT)
    with database.using() as connection:
        connection.execute("INSERT INTO words VALUES ('a')")
    database.close()
    assert Hurried.refusals == 0


def test_what_fails_in_a_transaction_has_not_happened(file: Path) -> None:
    database = Database(file, SCRIPT)
    with contextlib.suppress(KeyError), database.changing() as connection:
        connection.execute("INSERT INTO words VALUES ('a')")
        raise KeyError
    with database.using() as connection:
        assert connection.execute("SELECT count(*) FROM words").fetchone() == (0,)
    database.close()


def test_a_link_in_the_place_of_the_file_is_not_followed(file: Path, tmp_path: Path) -> None:
    file.symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(StateUnusable), Database(file, SCRIPT).using():
        pass
    assert not (tmp_path / "elsewhere.db").exists()


def test_a_file_that_is_no_database_is_named(file: Path) -> None:
    file.write_bytes(b"something else, and long enough to be looked at" * 10)
    with pytest.raises(StateUnusable, match="cannot be used"), Database(file, SCRIPT).using():
        pass


def test_a_fork_of_the_process_has_a_connection_of_its_own_and_waits_for_no_thread_of_its_parent(
    file: Path,
) -> None:
    database = Database(file, SCRIPT)
    with database.changing() as connection:  # somebody uses it at this very moment
        connection.execute("INSERT INTO words VALUES ('a')")
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            with database.using() as own:
                os._exit(0 if own is not connection and not own.in_transaction else 1)
        assert os.waitpid(child, 0)[1] == 0
    with database.using() as connection:
        assert connection.execute("SELECT count(*) FROM words").fetchone() == (1,)
    database.close()
