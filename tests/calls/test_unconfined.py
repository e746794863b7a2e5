"""What `unconfined` names, on a machine that cannot confine tools; everything else is refused there (SBX-1)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.workers import POORER
from toolkeep.sandbox.launch import interpreter
from toolkeep.sandbox.syscalls import this_machine

ROOT = Path(__file__).resolve().parents[2]
PROCESS = str(ROOT / "tests" / "execution" / "conversing.py")
ORDINARY = 1_900_000_103

TOOLS = """
import os, subprocess, time
def shout(text): return text.upper()
def whisper(text): return text.lower()
def linger(path):
    with open(path, "w") as file:
        file.write(str(subprocess.Popen(["/bin/sleep", "300"]).pid))
    time.sleep(300)
"""

pytestmark = pytest.mark.spec("SBX-1")


def tool(name: str, *arguments: str, **fields: Any) -> dict[str, Any]:
    properties = {argument: {"type": "string"} for argument in arguments}
    parameters = {"type": "object", "properties": properties}
    said = {"name": name, "version": "1.0.0", "description": f"It can {name}.", "side_effects": ["None"]}
    return {**said, "parameters": parameters, **fields}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What became of the calls of `unconfined.py`."""
    folder = tmp_path_factory.mktemp("machine")
    home, project = folder / "home", folder / "project"
    (home / ".agent").mkdir(parents=True)
    project.mkdir()
    (project / "notes").write_text("a note")
    for name in ("tools.py", "others.py"):
        (home / name).write_text(TOOLS)
    tools = [
        tool("shout", "text", run={"python": f"{home}/tools.py:shout"}),
        tool(
            "linger", "path", run={"python": f"{home}/tools.py:linger"}, constraints={"max_execution_time": 1}
        ),
        tool("whisper", "text", run={"python": f"{home}/others.py:whisper"}),
        tool("variables", run={"command": ["env"]}, result_type="string"),
        tool("talk", run={"process": {"argv": [interpreter(), "-I", "-S", PROCESS], "code": [PROCESS]}}),
    ]
    local = {
        "inherit": "defaults",
        "capabilities": ["process.spawn:/usr/bin/ls"],
        "permissions": ["tool.system.run"],
    }
    config = {
        "unconfined": ["read_file", "run_command", "tools.py", "variables", "talk", "server"],
        "agents": {"local": local},
        "tool_registry": {"custom_tools": tools},
    }
    (home / ".agent" / "config.yml").write_text(json.dumps(config))
    machine = this_machine()
    assert machine is not None
    become = []
    if os.geteuid() == 0:
        become = [sys.executable, "-m", "tests.hostile.sandbox.as_ordinary", str(ORDINARY)]
        for path in (folder, *folder.rglob("*")):
            os.chown(path, ORDINARY, ORDINARY)
        for parent in (folder, *folder.parents[:3]):
            parent.chmod(parent.stat().st_mode | 0o055)
    poorer = [sys.executable, POORER, str(machine.numbers["unshare"])]
    command = [*become, *poorer, sys.executable, "-m", "tests.calls.unconfined", str(project)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "HOME": str(home)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_is_named_runs_and_its_result_says_so(said: Any) -> None:
    ran = [
        (name, isolation, enforced)
        for name, status, isolation, enforced, _ in said["calls"]
        if status == "ok"
    ]
    names = ["read_file", "shout", "variables", "talk", "talk", "echo"]
    assert ran == [(name, "none", ["unconfined"]) for name in names]
    assert said["programs"] == [["talk", "none"], ["server", "none"]]


def test_the_record_says_so_too(said: Any) -> None:
    assert said["recorded"]["shout"] == ["none", ["unconfined"]]


def test_what_is_not_named_is_refused(said: Any) -> None:
    refused = {name: value for name, status, *_, value in said["calls"] if status != "ok"}
    assert "isolation 'strict' is not available here" in refused["list_directory"]
    assert "isolation 'standard' is not available here" in refused["whisper"]
    assert "no grant for fs.read of '/etc/hostname'" in refused["read_file"]


def test_what_needs_no_grant_to_write_because_it_is_confined_needs_one_here(said: Any) -> None:
    (value,) = (value for name, *_, value in said["calls"] if name == "run_command")
    assert "no grant for fs.write, and nothing here keeps it from writing" in value


def test_it_gets_a_clean_environment(said: Any) -> None:
    (value,) = (value for name, *_, value in said["calls"] if name == "variables")
    names = {line.partition("=")[0] for line in value.splitlines()}
    assert names <= {"HOME", "LANG", "PATH", "TMPDIR", "PWD", "SHLVL", "_"}


def test_at_its_deadline_it_is_killed_with_what_it_started(said: Any) -> None:
    assert said["lingering"] == "gone"


def test_list_says_which(said: Any) -> None:
    assert said["listed"].endswith(
        "by configuration: echo, linger, read_file, run_command, shout, talk, variables"
    )
