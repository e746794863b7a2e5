"""Ordinary files are read within their limit; whatever else stands in their place is refused, and never waited for."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.config.projects import never_waits
from toolkeep.errors import FileUnreadable
from toolkeep.host.files import is_there, read_named, read_ordinary
from toolkeep.mcp_client.pinned_tools import read_listing
from toolkeep.sources.definition_files import data_of
from toolkeep.sources.openapi.document import load_document


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"four")
    assert read_ordinary(tmp_path / "a", 4) == b"four"


@pytest.mark.parametrize("name", ["gone", "a/below_a_file"])
def test_where_there_is_none_there_is_none(name: str, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert read_ordinary(tmp_path / name, 4) is None
    with pytest.raises(FileUnreadable, match="does not exist"):
        read_named(tmp_path / name, 4)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(os.mkfifo, "is not a regular file", id="pipe"),
        pytest.param(lambda path: path.symlink_to("/dev/zero"), "is not a regular file", id="device"),
        pytest.param(lambda path: path.symlink_to("gone"), "is a dangling symlink", id="dangling"),
        pytest.param(lambda path: path.write_bytes(b"five!"), "is over 4 bytes", id="giant"),
    ],
)
def test_anything_else_is_refused(make: Callable[[Path], object], reason: str, tmp_path: Path) -> None:
    make(tmp_path / "a")
    with never_waits(), pytest.raises(FileUnreadable, match=reason):
        read_ordinary(tmp_path / "a", 4)


def test_who_asks_may_refuse_the_very_file_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").touch()

    def refuse(status: os.stat_result) -> None:
        assert status.st_ino == (tmp_path / "a").stat().st_ino
        raise FileUnreadable("a", "is another's")

    with pytest.raises(FileUnreadable, match="is another's"):
        read_ordinary(tmp_path / "a", 4, refuse)


def test_what_cannot_be_looked_at_is_not_taken_for_absent(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert is_there(tmp_path / "a")
    assert not is_there(tmp_path / "gone")
    assert not is_there(tmp_path / "a" / "below_a_file")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("n" * 300, "loop"):
        with pytest.raises(OSError, match=name):
            is_there(tmp_path / name)


@pytest.mark.parametrize("read", [load_document, read_listing])
def test_a_pipe_in_the_place_of_what_describes_an_upstream_is_not_waited_for(
    read: Callable[[Path], object], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "tools.json")
    with never_waits(), pytest.raises(FileUnreadable, match="is not a regular file"):
        read(tmp_path / "tools.json")


def test_the_hash_of_a_list_is_that_of_the_bytes_that_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, accepted = tmp_path / "tools.json", b'{"tools": []}'
    path.write_bytes(accepted)

    def swapped(raw: bytes, path: Path) -> object:
        path.write_bytes(b'{"tools": [{"name": "other"}]}')
        return data_of(raw, path)

    monkeypatch.setattr("toolkeep.mcp_client.pinned_tools.data_of", swapped)
    listing, digest = read_listing(path)
    assert (listing.tools, digest) == ((), hashlib.sha256(accepted).hexdigest())
