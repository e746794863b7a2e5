"""What was signed is remembered outside the log, and not more often than a disk bears."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from toolkeep.audit.signed_note import Note
from toolkeep.storage.keys import Keys
from toolkeep.storage.log import checkpoint_files as module
from toolkeep.storage.log.checkpoint_files import Checkpoints

pytestmark = pytest.mark.spec("AUD-2")

ROOT = bytes(32)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    (tmp_path / "audit").mkdir()
    return Keys(tmp_path)


@pytest.fixture
def checkpoints(keys: Keys, tmp_path: Path) -> Checkpoints:
    """Those of a log that was begun."""
    begun = Checkpoints(tmp_path / "audit", keys)
    begun.begin(0, ROOT)
    return begun


@pytest.mark.parametrize(
    ("age_s", "is_remembered"),
    [(0.0, False), (0.9, False), (1.0, True), (3600.0, True), (-1.0, True)],
)
def test_the_newest_is_remembered_once_a_second_and_where_the_clock_was_put_back(
    checkpoints: Checkpoints,
    keys: Keys,
    monkeypatch: pytest.MonkeyPatch,
    age_s: float,
    *,
    is_remembered: bool,
) -> None:
    """Put back beyond the second, whoever puts the log back to the last that is remembered is not seen."""
    first = checkpoints.remembered()
    os.utime(keys.signed, (1_000.0, 1_000.0))
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: 1_000.0 + age_s))
    note = checkpoints.sign(7, ROOT, is_kept=False)
    assert checkpoints.newest() == str(note)
    assert checkpoints.remembered() == (str(note) if is_remembered else first)


def test_one_that_is_kept_is_remembered_at_once(checkpoints: Checkpoints) -> None:
    kept: Note = checkpoints.sign(7, ROOT, is_kept=True)
    assert checkpoints.remembered() == checkpoints.kept()[-1] == str(kept)


def test_what_a_stopped_process_left_half_written_is_removed(
    checkpoints: Checkpoints, keys: Keys, tmp_path: Path
) -> None:
    left = (
        keys.folder / ".log.signed.1a2b",
        tmp_path / "audit" / ".checkpoint.1a2b",
        tmp_path / "audit" / ".resume.json.1a2b",
        tmp_path / "audit" / ".format.1a2b",
    )
    for path in left:
        path.touch()
    before = checkpoints.remembered()
    checkpoints.tidy()
    assert ([path for path in left if path.exists()], checkpoints.remembered()) == ([], before)
