"""Commands on machines that cannot confine tools: one line that says why, and the narrowest cure."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.sandbox.workers import POORER
from toolkeep.sandbox.container_check import FLAGS
from toolkeep.sandbox.syscalls import this_machine

LIMITED = "user.max_user_namespaces is 0. Cure: sudo sysctl --write user.max_user_namespaces=15000"
FILTERED = f"the container's profile denies user namespaces. Cure: start the container with {FLAGS}"


def filtered() -> str:
    """The system calls that the default profile of a container runtime denies, by number."""
    machine = this_machine()
    assert machine is not None
    return ",".join(str(machine.numbers[name]) for name in ("unshare", "mount", "setns", "pivot_root"))


def said_on(poorer: str, project: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """What a command says on a poorer machine."""
    command = [sys.executable, POORER, poorer, sys.executable, "-m", "toolkeep", *words]
    return subprocess.run(
        command,
        cwd=project,
        env={**os.environ, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def notices(said: str) -> list[str]:
    return [line for line in said.splitlines() if "tools cannot be confined here" in line]


@pytest.mark.spec("SBX-1")
@pytest.mark.parametrize("is_filtered", [False, True])
def test_init_says_in_one_line_what_is_missing_and_its_cure(is_filtered: bool, tmp_path: Path) -> None:
    done = said_on(filtered() if is_filtered else "user-namespaces", tmp_path, "init")
    (line,) = notices(done.stderr)
    assert (FILTERED if is_filtered else LIMITED) in line
    assert done.returncode == 0


@pytest.mark.spec("SBX-1")
@pytest.mark.parametrize("words", [("mcp",), ("serve", "--port", "0")])
def test_servers_say_it_while_they_run(words: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, POORER, "user-namespaces", sys.executable, "-m", "toolkeep", *words]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        alarm = threading.Timer(30, server.kill)
        alarm.start()
        try:
            assert server.stderr is not None
            assert any(LIMITED in line for line in server.stderr)
        finally:
            alarm.cancel()
            server.kill()


def test_where_tools_can_be_confined_nothing_is_said(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "toolkeep", "init"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""


@pytest.mark.spec("SBX-1")
def test_the_first_refusal_tells_the_operator_the_cure_and_the_model_only_what_is_missing(
    tmp_path: Path,
) -> None:
    (tmp_path / "notes").write_text("a note")
    done = said_on("user-namespaces", tmp_path, "call", "read_file", '{"path": "notes"}')
    assert "was not run: isolation 'strict' is not available here" in done.stdout + done.stderr
    assert "Remedy: sudo sysctl --write user.max_user_namespaces=15000" in done.stderr
    assert "sysctl" not in done.stdout


@pytest.mark.parametrize("name", ["apparmor", "docker"])
def test_profiles_are_printed_alone_on_standard_output(name: str, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("toolkeep")
    done = subprocess.run([program, "doctor", "--profile", name], capture_output=True, text=True, check=True)
    first = {"apparmor": "# AppArmor profile", "docker": "{\n"}[name]
    assert done.stdout.startswith(first)
    assert (f'profile toolkeep "{program.resolve()}"' in done.stdout) is (name == "apparmor")
