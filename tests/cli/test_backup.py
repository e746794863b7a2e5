"""`toolkeep backup`, there and back."""

from pathlib import Path

import pytest

from tests.cli.plainly import data, run
from tests.storage.keeps import WEATHER
from toolkeep import open_keep


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_state_is_backed_up_checked_and_restored() -> None:
    with open_keep() as keep:
        keep.create_definition(WEATHER)
    made = data("backup", "make", "keep.tar")
    assert data("backup", "check", "keep.tar") == made
    assert run("backup", "restore", "keep.tar", status=1).stderr.startswith("✗ ACODE-TSR-059")
    with open_keep() as keep:
        keep.delete_definition("weather")
    restored = data("backup", "restore", "keep.tar", "--replace")
    assert Path(restored["moved_aside"]).is_dir()
    with open_keep() as keep:
        assert "weather" in keep


@pytest.mark.parametrize("command", ["check", "restore"])
def test_a_file_that_is_not_there_is_named_before_anything_else(command: str) -> None:
    with open_keep() as keep:
        keep.create_definition(WEATHER)
    assert "'missing.tar' does not exist" in run("backup", command, "missing.tar", status=2).stderr
