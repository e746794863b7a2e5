"""How the suite ends, whatever happens."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox.workers import POORER, descendants
from toolkeep.escape_suite import suite
from toolkeep.escape_suite.suite import Leases, run_kind
from toolkeep.escape_suite.verdicts import Outcome, judge
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.syscalls import this_machine

run_network = functools.partial(run_kind, "network", levels=[Isolation.STRICT])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    made.mkdir()
    return made


@pytest.mark.spec("SBX-5")
def test_a_sandbox_that_cannot_be_set_up_has_contained_nothing(folder: Path) -> None:
    machine = this_machine()
    assert machine is not None
    number = str(machine.numbers["landlock_restrict_self"])
    runs = run_network(folder, launcher=(sys.executable, POORER, number))
    outcomes = {verdict.outcome for verdict in judge([runs], [Isolation.STRICT], "root")}
    assert (outcomes, folder.exists()) == ({Outcome.NOT_RUN}, False)


def test_a_host_that_takes_too_long_is_ended_and_said_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "KIND_SECONDS", 1.0)
    found = run_network(folder)
    assert found.problem == "the host ended early: it failed, or took longer than 1 s"
    assert not folder.exists()


def test_a_host_that_nobody_wants_any_more_does_not_start(folder: Path) -> None:
    leases = Leases()
    leases.close_all()
    assert run_network(folder, leases=leases).runs == ()
    assert not folder.exists()


def test_a_host_that_fails_says_why(folder: Path) -> None:
    (folder / "work").write_text("a file where a folder should be")
    found = run_network(folder)
    assert (found.runs, found.problem.split(":")[:2]) == ((), ["the host failed", " FileExistsError"])


def test_a_host_outside_an_enclosure_tries_nothing(folder: Path) -> None:
    command = [sys.executable, "-m", "toolkeep.escape_suite.host", "network", str(folder), "strict"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert json.loads(done.stdout) == {"failed": "ValueError: this is no enclosure"}
    assert list(folder.iterdir()) == []


def test_nothing_is_left_where_the_suite_itself_is_killed(folder: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from toolkeep.escape_suite.suite import run_kind\n"
        "tell = lambda run: print(run.attempt, flush=True)\n"
        "run_kind('network', pathlib.Path(sys.argv[1]), levels=['strict'], tell=tell)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        below = descendants(process.pid)
        process.kill()
        assert below
    for pid in below:
        while Path(f"/proc/{pid}/exe").exists() and str(folder) in _command(pid):
            pass
    assert not folder.exists()


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
