"""What tools replaced is kept for some days, within quotas, and privately."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from toolkeep.storage.sqlite import replaced_files_db
from toolkeep.storage.sqlite.replaced_files_db import SqliteReplacedFiles
from toolkeep.stores.replaced_files import MemoryReplacedFiles, Replaced, ReplacedFiles

pytestmark = pytest.mark.spec("TLS-4")

DAY = 86_400.0


class Clock:
    now = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now


def replaced(call: str, at: float = Clock.now, agent: str = "ada", size: int = 3) -> Replaced:
    return Replaced(
        call=call, tool="write_file", agent=agent, session="s", conversation="c", path="/f", at=at,
        was_there=True, before=b"x" * size,
    )  # fmt: skip


@pytest.fixture(params=["file", "memory"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReplacedFiles]:
    if request.param == "memory":
        yield MemoryReplacedFiles(most=3)
        return
    with closing(SqliteReplacedFiles(tmp_path, 7, Clock())) as files:
        yield files


def test_it_is_kept_as_it_was_with_what_became_of_it(kept: ReplacedFiles) -> None:
    kept.put(replaced("1"))
    assert kept.of_call("1") == replaced("1")
    kept.note_after("1", "ab")
    kept.note_undone("1", "2")
    found = kept.of_call("1")
    assert found is not None
    assert (found.after_sha256, found.undone_by) == ("ab", "2")
    kept.put(replaced("3", at=Clock.now + 1))
    assert [one.call for one in kept.of_session("s")] == ["3", "1"]
    assert [one.call for one in kept.of_session("c", "ada")] == ["3", "1"]
    assert not kept.of_session("s", "bob")
    assert not kept.of_session("t")
    assert kept.of_call("9") is None


def test_the_oldest_goes_first(kept: ReplacedFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaced_files_db, "UNDO_AGENT_BYTES", 9)
    for number in range(4):
        kept.put(replaced(str(number), at=Clock.now + number))
    assert [one.call for one in kept.of_session("s")] == ["3", "2", "1"]


def test_all_agents_together_have_a_quota_and_days_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaced_files_db, "UNDO_TOTAL_BYTES", 9)
    clock = Clock()
    with closing(SqliteReplacedFiles(tmp_path, 7, clock)) as files:
        for number in range(4):
            files.put(replaced(str(number), agent=str(number), at=clock.now + number))
        assert [one.call for one in files.of_session("s")] == ["3", "2", "1"]
        clock.now += 7 * DAY + 2
        assert [one.call for one in files.of_session("s")] == ["3", "2"]  # before anything is dropped
        files.put(replaced("4", at=clock.now))
        assert files.of_call("1") is None
        assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}


def test_none_is_kept_with_no_days(tmp_path: Path) -> None:
    with closing(SqliteReplacedFiles(tmp_path, 0, Clock())) as files:
        files.put(replaced("1"))
        files.note_after("1", "ab")
        assert files.of_call("1") is None
    assert not (tmp_path / "undo.db").exists()
