"""One SQLite file, shared by threads and processes, from its first moment on."""

import asyncio
import contextlib
import errno
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolkeep.approval.question import Rule
from toolkeep.errors import StateUnusable
from toolkeep.storage.backup import make_backup
from toolkeep.storage.sql.database_location import SqliteLocation
from toolkeep.storage.sqlite.approvals_db import SqliteApprovals
from toolkeep.storage.sqlite.bodies_db import Bodies
from toolkeep.storage.sqlite.database import Database
from toolkeep.storage.sqlite.ledger_db import SqliteLedger
from toolkeep.storage.sqlite.state_db import KeepState
from toolkeep.storage.sqlite.tokens_db import SqliteTokens

PRAGMAS = "PRAGMA journal_mode = WAL;"
TABLES = "CREATE TABLE words (word TEXT) STRICT;"


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
    database = Database(file, PRAGMAS, TABLES)
    with database.using() as connection:
        connection.execute("INSERT INTO words VALUES ('a')")
    database.close()
    assert Hurried.refusals == 0


def test_what_fails_in_a_transaction_has_not_happened(file: Path) -> None:
    database = Database(file, PRAGMAS, TABLES)
    with contextlib.suppress(KeyError), database.changing() as connection:
        connection.execute("INSERT INTO words VALUES ('a')")
        raise KeyError
    with database.using() as connection:
        assert connection.execute("SELECT count(*) FROM words").fetchone() == (0,)
    database.close()


def test_who_still_uses_it_after_it_was_closed_leaves_nothing_open(file: Path) -> None:
    database = Database(file, PRAGMAS, TABLES)
    database.close()
    with database.changing() as connection:
        connection.execute("INSERT INTO words VALUES ('a')")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def test_two_that_use_it_in_one_process_keep_their_locks_and_what_they_write(file: Path) -> None:
    first, second = Database(file, PRAGMAS, TABLES), Database(file, PRAGMAS, TABLES)
    for one in (first, second):
        with one.using() as connection:
            connection.execute("INSERT INTO words VALUES ('before')")
    # SQLite removes the journal with the last connection, and knows of others by their locks alone.
    used = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM words').fetchall()"
    subprocess.run([sys.executable, "-c", used, str(file)], check=True)
    with first.using() as connection:
        connection.execute("INSERT INTO words VALUES ('after')")
    with contextlib.closing(sqlite3.connect(file)) as connection:
        words = connection.execute("SELECT word FROM words").fetchall()
    assert words == [("before",), ("before",), ("after",)]
    first.close()
    second.close()


def remove(file: Path) -> None:
    for path in file.parent.glob(f"{file.name}*"):
        path.unlink()


def words_in(file: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        return [word for (word,) in connection.execute("SELECT word FROM words")]


def test_what_is_written_after_its_file_was_removed_is_in_the_new_one(file: Path) -> None:
    database = Database(file, PRAGMAS, TABLES)
    for word in ("before", "after"):
        with database.using() as connection:
            connection.execute("INSERT INTO words VALUES (?)", (word,))
        if word == "before":
            remove(file)
    assert words_in(file) == ["after"]
    database.close()
    assert words_in(file) == ["after"]


def test_who_had_the_removed_file_open_leaves_the_journal_of_the_new_one_alone(file: Path) -> None:
    first, second = Database(file, PRAGMAS, TABLES), Database(file, PRAGMAS, TABLES)
    with first.using() as connection:
        connection.execute("INSERT INTO words VALUES ('before')")
    remove(file)
    for one in (second, first, second):
        with one.using() as connection:
            connection.execute("INSERT INTO words VALUES ('after')")
    first.close()
    with second.using() as connection:
        connection.execute("INSERT INTO words VALUES ('after')")
    assert words_in(file) == ["after"] * 4
    second.close()


def test_a_link_in_its_place_is_not_followed(file: Path, tmp_path: Path) -> None:
    file.symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(StateUnusable, match="cannot be used"), Database(file, PRAGMAS, TABLES).using():
        pass
    assert not (tmp_path / "elsewhere.db").exists()


def test_a_file_that_is_no_database_is_named(file: Path) -> None:
    file.write_bytes(b"something else, and long enough to be looked at" * 10)
    with pytest.raises(StateUnusable, match="cannot be used"), Database(file, PRAGMAS, TABLES).using():
        pass


def test_a_fork_of_the_process_has_a_connection_of_its_own_and_waits_for_no_thread_of_its_parent(
    file: Path,
) -> None:
    database = Database(file, PRAGMAS, TABLES)
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


def test_what_the_system_says_is_told_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(file))

    monkeypatch.setattr(Database, "_open", refuse)
    with pytest.raises(StateUnusable) as refused, Database(file, PRAGMAS, TABLES).using():
        pass
    assert refused.value.message == f"{file}: cannot be used: Read-only file system"


def claim(folder: Path) -> None:
    asyncio.run(SqliteLedger(folder).claim("key", "call", "hash"))


def ask(folder: Path) -> None:
    SqliteApprovals(folder).add_rule(rule())


def make_token(folder: Path) -> None:
    SqliteTokens(folder).note_use("token", 1.0)


def put_body(folder: Path) -> None:
    Bodies(folder).put(b"body")


def switch_off(folder: Path) -> None:
    KeepState(folder).put_switch("tool", enabled=False)


def store(folder: Path) -> None:
    SqliteLocation(folder).connect().close()


def rule() -> Rule:
    names: Any = dict.fromkeys(("id", "text", "agent", "tool", "definition_hash", "approver"), "x")
    return Rule(**names, constraints=(), made_at=0.0, ends_at=1.0)


STORES = {
    "ledger.db": claim,
    "approvals.db": ask,
    "tokens.db": make_token,
    "bodies.db": put_body,
    "state.db": switch_off,
    "store.db": store,
}


@pytest.mark.parametrize("name", STORES)
def test_a_database_that_was_emptied_is_no_new_one(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    STORES[name](tmp_path)
    for side in (file, tmp_path / f"{name}-wal", tmp_path / f"{name}-shm"):
        side.unlink(missing_ok=True)
    file.touch()
    for use in (lambda: STORES[name](tmp_path), lambda: make_backup(tmp_path, tmp_path / "backup")):
        with pytest.raises(StateUnusable, match="was emptied"):
            use()
    assert file.stat().st_size == 0
    file.unlink()
    (tmp_path / "keys" / "ledger.made").unlink(missing_ok=True)
    STORES[name](tmp_path)
    assert [path.name for path in tmp_path.glob(".*")] == []


@pytest.mark.parametrize("name", STORES)
def test_a_database_of_a_newer_toolkeep_is_refused_by_name(tmp_path: Path, name: str) -> None:
    STORES[name](tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / name)) as connection:
        connection.execute("PRAGMA user_version = 2")
    with pytest.raises(StateUnusable, match=f"{name}: has format 2, but this toolkeep supports only up to 1"):
        STORES[name](tmp_path)


@pytest.mark.parametrize("name", [name for name in STORES if name != "store.db"])
def test_a_table_that_is_gone_is_not_made_anew(tmp_path: Path, name: str) -> None:
    """What it held would be forgotten: a claim, an answer, a revocation."""
    STORES[name](tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / name)) as connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            connection.execute(f"DROP TABLE {table}")
    with pytest.raises(StateUnusable, match="no such table"):
        STORES[name](tmp_path)


def test_switches_and_pins_of_an_emptied_state_are_not_read_as_none(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    for read in (KeepState(tmp_path).switches, KeepState(tmp_path).pins):
        with pytest.raises(StateUnusable, match="was emptied"):
            read()


def test_who_is_stopped_while_a_database_is_made_leaves_none(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "hardlink_to", stop)
    with pytest.raises(KeyboardInterrupt), Database(file, PRAGMAS, TABLES).using():
        pass
    assert list(file.parent.iterdir()) == []
