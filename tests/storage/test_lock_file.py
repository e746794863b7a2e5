"""The lock of a project as a file: whole, for everybody to read, and never something else in its place."""

import os
from pathlib import Path

import pytest

from toolkeep.errors import FileUnreadable
from toolkeep.registry.lockfile import LOCK_FILE, Lock
from toolkeep.storage.lock_file import lock_bytes, read_lock_file, write_lock_file


def test_a_lock_is_written_for_everybody_to_read_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        path = write_lock_file(tmp_path, Lock(upstreams={}, tools={}))
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644
    assert read_lock_file(tmp_path) == Lock(upstreams={}, tools={})


def test_a_file_that_is_put_in_the_place_of_a_new_lock_keeps_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private"
    private.write_text("mine")
    private.chmod(0o600)
    rename = Path.rename

    def rename_and_replace(path: Path, target: Path) -> Path:
        made = rename(path, target)
        made.unlink()
        made.symlink_to(private)
        return made

    monkeypatch.setattr(Path, "rename", rename_and_replace)
    write_lock_file(tmp_path, Lock(upstreams={}, tools={}))
    assert private.stat().st_mode & 0o777 == 0o600


def open_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_there_is_none(tmp_path: Path) -> None:
    assert lock_bytes(tmp_path) is None


@pytest.mark.parametrize("kind", ["folder", "pipe", "link to nothing"])
def test_something_else_in_its_place_is_refused_and_nothing_stays_open(tmp_path: Path, kind: str) -> None:
    path = tmp_path / LOCK_FILE
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("nowhere")
    before = open_files()
    with pytest.raises(FileUnreadable):
        lock_bytes(tmp_path)
    assert open_files() == before
