"""A C program is built and run with the built-in tools, by an agent that holds the programs for it."""

import shutil
from pathlib import Path

import pytest

from toolkeep import ToolResult, open_keep

GCC = shutil.which("gcc")
PERMISSIONS = ["tool.filesystem.read", "tool.filesystem.write", "tool.system.run"]

pytestmark = pytest.mark.skipif(GCC is None, reason="there is no gcc here")


def built(project: Path, *programs: str) -> list[ToolResult]:
    (project / "hello.c").write_text('#include <stdio.h>\nint main(void) { return puts("built") < 0; }\n')
    held = [f"process.spawn:{program}" for program in programs]
    with open_keep(project=project, approver=lambda _: True) as keep:
        keep.declare_agent(
            "a", capabilities=[f"fs.read:{project}", f"fs.write:{project}", *held], permissions=PERMISSIONS
        )
        return [
            keep.call_sync("run_command", {"command": command}, agent="a")
            for command in ("gcc hello.c -o hello", "./hello")
        ]


def test_a_program_is_built_and_run_where_its_name_and_the_compiler_are_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    compiled, run = built(tmp_path, "gcc", "./hello")
    assert (compiled.ok, run.ok) == (True, True), compiled.text + run.text
    assert "built\n" in run.text
    assert (tmp_path / "hello").stat().st_mode & 0o077 == 0


def test_a_program_that_is_not_granted_is_built_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    compiled, run = built(tmp_path, "gcc")
    assert (compiled.ok, (tmp_path / "hello").exists(), run.ok) == (True, True, False)
    assert "has no grant for process.spawn" in run.text
