"""What an attempt does with nothing around it stays inside, and goes with it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.workers import POORER
from toolkeep.escape_suite.enclosure import PASSWORDS
from toolkeep.sandbox.syscalls import this_machine

ENCLOSURE = (sys.executable, "-m", "toolkeep.escape_suite.enclosure")

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can do this harm")

SLEEPING = "import signal; signal.signal(signal.SIGURG, lambda *_: print('hit', flush=True));"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    made.mkdir()
    return made


def run(folder: Path, code: str, *before: str) -> "subprocess.CompletedProcess[str]":
    command = [*before, *ENCLOSURE, str(folder), sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.wait(timeout=30)
        said = process.stdout.read() if process.stdout else ""
    return subprocess.CompletedProcess(command, process.returncode, said)


@pytest.fixture
def bystander() -> Iterator["subprocess.Popen[str]"]:
    """A process outside that says when a signal comes."""
    code = SLEEPING + "print('here', flush=True); input(); print('asked', flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process


def test_a_signal_to_everybody_reaches_nobody_outside(
    folder: Path, bystander: "subprocess.Popen[str]"
) -> None:
    # To others of the same namespace; without any, the kernel says that there is nobody.
    code = "import os, signal, subprocess; p = subprocess.Popen(['sleep', '9']); os.kill(-1, signal.SIGURG); p.kill()"
    assert run(folder, code).returncode == 0
    assert bystander.communicate("\n")[0] == "asked\n"


def test_no_process_outside_is_seen(folder: Path) -> None:
    code = "import os; print(sorted(int(name) for name in os.listdir('/proc') if name.isdigit()))"
    assert json.loads(run(folder, code).stdout) == [1, 2]


@only_root
def test_a_mount_is_not_shared_with_the_machine(folder: Path) -> None:
    code = (
        "from toolkeep.escape_suite.attempts import system\n"
        f"system.call('mount', b'tmpfs', {os.fsencode(folder)!r}, b'tmpfs', 0, None)"
    )
    shared = str(Path(__file__).resolve().parent / "shared_mounts.py")
    assert run(folder, code, sys.executable, shared).stdout == "alone\n"


@pytest.mark.parametrize("kind", ["ipc", "mnt", "pid", "uts"])
def test_the_namespaces_are_its_own(kind: str, folder: Path) -> None:
    """Looked at only: what would be done to the machine's own must not be tried."""
    said = run(folder, f"import os; print(os.readlink('/proc/self/ns/{kind}'))").stdout.strip()
    assert said.startswith(f"{kind}:")
    assert said != str(Path(f"/proc/self/ns/{kind}").readlink())


@only_root
@pytest.mark.skipif(not Path(PASSWORDS).exists(), reason="there is no file of passwords")
def test_the_passwords_inside_are_made(folder: Path) -> None:
    said = run(folder, f"print(open({PASSWORDS!r}).read(), end='')").stdout
    assert said == "root:!:made for an attempt\n"


def test_the_folder_is_gone_afterwards(folder: Path) -> None:
    done = run(folder, f"open({str(folder / 'file')!r}, 'w').close()")
    assert (done.returncode, folder.exists()) == (0, False)


def test_a_failure_of_the_command_is_passed_on(folder: Path) -> None:
    assert run(folder, "raise SystemExit(3)").returncode == 3


def test_everything_ends_with_whoever_started_it(folder: Path) -> None:
    code = "import os, time; os.fork(); os.setsid(); print(flush=True); time.sleep(60)"
    command = [*ENCLOSURE, str(folder), sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        process.stdin.close()
        assert process.stdout.read().strip() == b""  # until nobody holds the pipe any more
        assert process.wait(timeout=30) == -signal.SIGKILL % 256
    assert not folder.exists()


def test_where_no_namespace_can_be_had_nothing_is_run(folder: Path) -> None:
    machine = this_machine()
    assert machine is not None
    done = run(folder, "print('ran')", sys.executable, POORER, str(machine.numbers["unshare"]))
    assert (done.returncode, list(json.loads(done.stdout)), folder.exists()) == (1, ["unenclosed"], False)
