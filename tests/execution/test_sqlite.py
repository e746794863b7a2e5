"""A SQLite file in a strict worker: which ways work, call after call, and which does not."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from toolkeep import Code, Keep, ToolResult, Touches, open_keep, tool

AT: dict[str, Any] = {
    "constraints": {"required_isolation": "strict"},
    "side_effects": ["FsWrite"],
    "danger": "low",
}

BESIDE = ("another", "calls.db-journal", "calls.db-other", "calls.db-shm", "calls.db-wal", "notes-wal")


def _count(path: str, journal: str) -> int:
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA journal_mode = {journal}")
        database.execute("CREATE TABLE IF NOT EXISTS calls (number INTEGER PRIMARY KEY)")
        database.execute("INSERT INTO calls DEFAULT VALUES")
        return int(database.execute("SELECT count(*) FROM calls").fetchone()[0])


@tool(capabilities=["fs.write"], **AT)
def count_in_file(path: Annotated[str, Touches("fs.write")], journal: str) -> int:
    """Count calls in a database that an argument names."""
    return _count(path, journal)


@tool(capabilities=["fs.read"], **AT | {"side_effects": ["FsRead"]})
def read_count(path: Annotated[str, Touches("fs.read")]) -> int:
    """Count calls in a database that may only be read."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        return int(database.execute("SELECT count(*) FROM calls").fetchone()[0])


@tool(capabilities=["fs.write"], **AT)
def names_beside(path: Annotated[str, Touches("fs.write")]) -> list[str]:
    """What a call sees beside its database, after it tried to make another file there."""
    with contextlib.suppress(OSError):
        Path(path).with_name("another").touch()
    return [name for name in BESIDE if Path(path).with_name(name).exists()]


@tool(capabilities=["fs.write:./data"], **AT)
def count_in_folder(folder: str) -> int:
    """Count calls in a database of the folder that the tool requires."""
    return _count(f"{folder}/calls.db", "DELETE")


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keep]:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    with open_keep(project=tmp_path) as keep:
        keep.register(count_in_file, count_in_folder, read_count, names_beside)
        keep.declare_agent("ada", capabilities=["fs.write:./data", "fs.read:./data"])
        keep.declare_agent("file", capabilities=["fs.write:./data/calls.db"])
        yield keep


def calls(keep: Keep, name: str, **arguments: Any) -> list[ToolResult]:
    return [keep.call_sync(name, arguments, agent="ada") for _ in range(3)]


def test_a_folder_that_the_tool_requires_holds_database_and_journal(keep: Keep, tmp_path: Path) -> None:
    results = calls(keep, "count_in_folder", folder=str(tmp_path / "data"))
    assert [result.value for result in results] == [1, 2, 3], results[0].text


@pytest.mark.parametrize("journal", ["WAL", "TRUNCATE", "PERSIST", "MEMORY"])
def test_a_file_that_an_argument_names_comes_with_its_journal(journal: str, keep: Keep) -> None:
    results = calls(keep, "count_in_file", path="data/calls.db", journal=journal)
    assert [result.value for result in results] == [1, 2, 3], results[1].text


def test_a_journal_that_sqlite_removes_needs_the_folder(keep: Keep) -> None:
    """A worker can make and remove no file beside the one that it was granted."""
    first, second, _ = calls(keep, "count_in_file", path="data/calls.db", journal="DELETE")
    assert (first.value, second.code) == (1, Code.TOOL_FAILED)


def test_a_log_that_another_program_holds_open_is_read_and_written(keep: Keep) -> None:
    with contextlib.closing(sqlite3.connect("data/calls.db")) as host:
        host.execute("PRAGMA journal_mode = WAL")
        host.execute("CREATE TABLE calls (number INTEGER PRIMARY KEY)")
        host.execute("INSERT INTO calls DEFAULT VALUES")
        host.commit()
        assert keep.call_sync("read_count", {"path": "data/calls.db"}, agent="ada").value == 1
        assert calls(keep, "count_in_file", path="data/calls.db", journal="WAL")[-1].value == 4
        assert host.execute("SELECT count(*) FROM calls").fetchone() == (4,)


@pytest.mark.spec("SBX-1")
def test_nothing_but_journals_of_a_database_is_granted_with_it(keep: Keep, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with contextlib.closing(sqlite3.connect(data / "calls.db")) as host:
        host.execute("PRAGMA journal_mode = WAL")
    (data / "calls.db-other").touch()
    (data / "calls.db-journal").symlink_to(data / "calls.db-other")

    def seen(path: str, agent: str = "ada") -> Any:
        return keep.call_sync("names_beside", {"path": path}, agent=agent).value

    # The scope of this agent is the file: what lies beside it is not its own.
    assert seen("data/calls.db", agent="file") == []
    assert not (data / "calls.db-wal").exists()
    assert seen("data/calls.db") == ["calls.db-shm", "calls.db-wal"]
    (data / "notes").write_text("no database, however long it is")
    (data / "notes-wal").touch()
    assert seen("data/notes") == []
