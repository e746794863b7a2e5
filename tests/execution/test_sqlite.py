"""A SQLite file in a strict worker: which ways work, call after call, and which does not."""

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


@tool(capabilities=["fs.write:./data"], **AT)
def count_in_folder(folder: str) -> int:
    """Count calls in a database of the folder that the tool requires."""
    return _count(f"{folder}/calls.db", "DELETE")


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keep]:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    with open_keep(project=tmp_path) as keep:
        keep.register(count_in_file, count_in_folder)
        keep.declare_agent("ada", capabilities=["fs.write:./data"])
        yield keep


def calls(keep: Keep, name: str, **arguments: Any) -> list[ToolResult]:
    return [keep.call_sync(name, arguments, agent="ada") for _ in range(3)]


def test_a_folder_that_the_tool_requires_holds_database_and_journal(keep: Keep, tmp_path: Path) -> None:
    results = calls(keep, "count_in_folder", folder=str(tmp_path / "data"))
    assert [result.value for result in results] == [1, 2, 3], results[0].text


def test_a_file_that_an_argument_names_works_with_a_journal_in_memory(keep: Keep) -> None:
    results = calls(keep, "count_in_file", path="data/calls.db", journal="MEMORY")
    assert [result.value for result in results] == [1, 2, 3], results[0].text


def test_a_file_that_an_argument_names_has_no_journal_beside_it(keep: Keep) -> None:
    """Its folder is not granted, and a journal that was would be no use: SQLite removes it after each change."""
    first, second, _ = calls(keep, "count_in_file", path="data/calls.db", journal="DELETE")
    assert (first.value, second.code) == (1, Code.TOOL_FAILED)
