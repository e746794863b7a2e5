"""A machine that runs out of processes, threads or descriptors: calls are refused, at once, and work again later."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ORDINARY = 54322
"""Nobody else is this user: what he runs is counted."""

FEWEST, MOST = 1, 30
REFUSED = {"SandboxExhausted", "SandboxBroken"}


def outcomes(kind: str, numbers: list[int], launcher: list[str]) -> list[str]:
    command = [*launcher, sys.executable, "-m", "tests.sandbox.poor_host", kind, *map(str, numbers)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # nothing was raised where nobody looks
    found: list[str] = json.loads(done.stdout)
    return found


def test_a_user_who_may_start_no_more_processes_is_refused() -> None:
    if os.geteuid() != 0:
        pytest.skip("how many processes this user runs already is not known")
    as_other = [sys.executable, "-m", "tests.hostile.sandbox.as_ordinary", str(ORDINARY)]
    found = outcomes("processes", [*range(1, 8), 40], as_other)
    assert set(found) == {"ok", *REFUSED & set(found)}
    assert (found[0], found[7], found[8], found[-1]) == ("SandboxExhausted", "ok", "SandboxExhausted", "ok")


def test_a_host_without_descriptors_is_refused_wherever_it_runs_out() -> None:
    found = outcomes("descriptors", [*range(1, 9), 60], [])
    assert set(found) == {"ok", *REFUSED & set(found)}
    assert (found[0], found[1], found[-2:]) == ("SandboxExhausted", "SandboxExhausted", ["ok", "ok"])


@pytest.fixture
def pids_group() -> Iterator[Path]:
    """A cgroup that bounds processes, of whichever version."""
    made = []
    for base in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup/unified")):
        folder = base / f"test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        made.append(folder)
        if (folder / "pids.max").exists():
            break
    else:
        for folder in made:
            folder.rmdir()
        pytest.skip("no cgroup that bounds processes can be made here")
    yield made[-1]
    for folder in made:
        folder.rmdir()


@pytest.mark.parametrize("most", [FEWEST, 2, 3, 4, 5, 6, MOST])
def test_a_host_in_a_full_group_of_processes_is_refused(most: int, pids_group: Path) -> None:
    join = f'echo $$ > {pids_group}/cgroup.procs; echo {most} > {pids_group}/pids.max; exec "$@"'
    found = outcomes("processes", [1000], ["/bin/sh", "-c", join, "sh"])
    assert set(found) <= {"ok", *REFUSED}
    if most in (FEWEST, MOST):
        assert found == ["SandboxExhausted" if most == FEWEST else "ok"] * 2
