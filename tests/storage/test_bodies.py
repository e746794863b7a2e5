"""Bodies beside the log: by hash, checked, erasable."""

import hashlib
import os
from pathlib import Path

import pytest

from toolkeep.audit.errors import BodyState, BodyUnavailable
from toolkeep.storage.bodies import Bodies


def state_of(bodies: Bodies, digest: str) -> BodyState:
    with pytest.raises(BodyUnavailable) as caught:
        bodies.get(digest)
    return caught.value.state


def file_of(bodies: Bodies, digest: str) -> Path:
    return bodies.folder / digest[:2] / digest[2:]


def test_a_body_is_kept_under_its_hash_once_and_privately(tmp_path: Path) -> None:
    bodies = Bodies(tmp_path)
    digest = bodies.put(b"hello")
    assert digest == bodies.put(b"hello") == hashlib.sha256(b"hello").hexdigest()
    assert bodies.get(digest) == b"hello"
    files = [path for path in bodies.folder.rglob("*") if path.is_file()]
    assert files == [file_of(bodies, digest)]
    assert {path.stat().st_mode & 0o077 for path in (bodies.folder, *bodies.folder.rglob("*"))} == {0}


def test_a_changed_body_is_not_given_out(tmp_path: Path) -> None:
    bodies = Bodies(tmp_path)
    digest = bodies.put(b"hello")
    file_of(bodies, digest).write_bytes(b"hullo")
    assert state_of(bodies, digest) is BodyState.CHANGED


def test_an_erased_body_is_called_erased_and_a_lost_one_missing(tmp_path: Path) -> None:
    bodies = Bodies(tmp_path)
    digest = bodies.put(b"hello")
    assert bodies.erase(digest)
    assert state_of(bodies, digest) is BodyState.ERASED
    assert not bodies.erase(digest)
    lost = bodies.put(b"lost")
    file_of(bodies, lost).unlink()
    assert state_of(bodies, lost) is BodyState.MISSING
    assert state_of(bodies, "0" * 64) is BodyState.MISSING


def test_a_body_put_again_after_it_was_erased_is_there(tmp_path: Path) -> None:
    bodies = Bodies(tmp_path)
    digest = bodies.put(b"hello")
    bodies.erase(digest)
    assert bodies.put(b"hello") == digest
    assert bodies.get(digest) == b"hello"
    assert not list(bodies.folder.rglob("*.erased"))


def test_bodies_that_were_not_used_for_long_are_erased(tmp_path: Path) -> None:
    bodies = Bodies(tmp_path)
    old, used, new = bodies.put(b"old"), bodies.put(b"used"), bodies.put(b"new")
    for digest in (old, used):
        os.utime(file_of(bodies, digest), (1000, 1000))
    bodies.put(b"used")
    assert bodies.erase_older(2000) == [old]
    assert state_of(bodies, old) is BodyState.ERASED
    assert (bodies.get(used), bodies.get(new)) == (b"used", b"new")
    assert Bodies(tmp_path / "none").erase_older(2000) == []


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "A" * 64, "a" * 63])
def test_what_is_no_hash_names_no_file(tmp_path: Path, digest: str) -> None:
    bodies = Bodies(tmp_path)
    for use in (bodies.get, bodies.erase):
        with pytest.raises(ValueError, match="no SHA-256"):
            use(digest)
