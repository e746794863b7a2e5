"""Mounts in granted folders that come and go while workers wait."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from toolkeep.sandbox import mountinfo
from toolkeep.sandbox.mountinfo import MountWatch

LINES = b"""\
25 1 8:1 / / rw - ext4 /dev/sda1 rw
31 25 0:40 / /srv/my\\040work rw shared:5 - tmpfs tmpfs rw
32 25 0:41 / /srv/my\\040work/\xc3\xa4 rw - tmpfs tmpfs rw
33 25 0:42 / /srv/my\\040workshop rw - tmpfs tmpfs rw
"""


@pytest.mark.spec("SBX-1")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts where workers of root are started")
def test_workers_reach_what_is_mounted_now_and_others_do_not_matter(tmp_path: Path) -> None:
    folder = tmp_path.resolve() / "granted"
    folder.mkdir()
    command = [sys.executable, "-m", "tests.sandbox.mounting", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        ["below+"] * 2,
        ["above+"] * 2,
        ["above++"] * 2,
        True,
        ["below++"] * 2,
    ]


def test_only_mounts_inside_of_the_folders_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mountinfo").write_bytes(LINES)
    monkeypatch.setattr(mountinfo, "_MOUNTS", str(tmp_path / "mountinfo"))
    inside = MountWatch(("/srv/my work", "/opt"))
    seen = [where.decode() for _, _, where in inside._seen]
    inside.close()
    inside.close()
    assert seen == ["/srv/my\\040work", "/srv/my\\040work/ä"]
