"""What a tool can leave in a folder that it may write, for the host or the next call to trip over."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox.workers import open_to_all

ROOT = Path(__file__).resolve().parents[2]
ORDINARY = 54321

REFUSED = {
    "setuid": "EPERM",
    "setgid": "EPERM",
    "immutable": "ENOTTY",
    "attribute": "ENOTSUP",
    "owner": "EPERM",
    "pipe": "EPERM",
    "socket": "EPERM",
    "device": "EPERM",
    "second name": "EXDEV",
}
LEFT = {"link": stat.S_ISLNK, "closed folder": stat.S_ISDIR, "closed file": stat.S_ISREG}


@pytest.fixture(params=["root", "ordinary"])
def user(request: pytest.FixtureRequest) -> int:
    if os.geteuid() != 0:
        if request.param == "root":
            pytest.skip("only root can be root")
        return os.geteuid()
    return 0 if request.param == "root" else ORDINARY


@pytest.fixture
def places(user: int, tmp_path: Path) -> tuple[Path, Path]:
    """A folder that may be written, and a file that may be read."""
    folder, file = tmp_path / "out", tmp_path / "read.txt"
    folder.mkdir()
    file.write_text("read me")
    open_to_all(tmp_path)
    if os.geteuid() == 0:
        os.chown(folder, user, user)
        os.chown(file, user, user)
    return folder, file


def attempted(kind: str, user: int, places: tuple[Path, Path]) -> str:
    as_other = [sys.executable, "-m", "tests.hostile.sandbox.as_ordinary", str(user)]
    command = [sys.executable, "-m", "tests.sandbox.leaving", kind, *map(str, places)]
    whole = command if user == os.geteuid() else [*as_other, *command]
    done = subprocess.run(whole, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(("kind", "error"), REFUSED.items())
def test_nothing_that_harms_others_is_left(
    kind: str, error: str, user: int, places: tuple[Path, Path]
) -> None:
    assert attempted(kind, user, places) == error
    for path in places[0].iterdir():
        status = path.lstat()
        owner = (status.st_uid, status.st_gid, status.st_nlink)
        assert (stat.S_ISREG(status.st_mode), status.st_mode & 0o6000, *owner) == (True, 0, user, user, 1)


@pytest.mark.parametrize(("kind", "is_it"), LEFT.items())
def test_links_and_closed_things_are_left_as_the_owner_s(
    kind: str, is_it: object, user: int, places: tuple[Path, Path]
) -> None:
    assert attempted(kind, user, places) == "done"
    (left,) = places[0].iterdir()
    assert callable(is_it)
    assert (is_it(left.lstat().st_mode), left.lstat().st_uid) == (True, user)
