"""What `add mcp` says of a server that it starts: why it fails, what it was denied, what was skipped."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.config.projects import accept
from tests.mcp_client.servers import add, opened
from toolkeep import ToolResult
from toolkeep.cli.main import cli
from toolkeep.sandbox.launch import interpreter

SCRIPT = str(Path(__file__).resolve().parent / "upstream.py")

pytestmark = pytest.mark.spec("MCP-2")


def server(*words: str) -> list[str]:
    return ["--", interpreter(), "-I", "-S", SCRIPT, *words]


def refused(project: Path, *words: str) -> str:
    done = CliRunner().invoke(cli, ["add", "mcp", "up", "--yes", "--project", str(project), *words])
    assert done.exit_code != 0
    return done.output


def test_text_before_the_first_message_is_skipped_and_shown(tmp_path: Path) -> None:
    said = add(tmp_path, "up", *server("banner"), is_accepted=False)
    assert "before its first message, which was skipped" in said
    assert "  | [info] Serving at stdio" in said


def test_the_time_to_start_can_be_set_and_says_what_was_waited_for(tmp_path: Path) -> None:
    said = refused(tmp_path, "--start-timeout", "1", *server("silent"))
    assert "it did not answer initialize in 1 s" in said
    assert "give it longer: --start-timeout SECONDS" in said
    add(tmp_path, "up", "--start-timeout", "30", *server("banner"), is_accepted=False)
    config = tmp_path / ".agent" / "config.yml"
    assert "start_timeout_s: 30" in config.read_text()
    config.write_text(config.read_text().replace("banner", "silent").replace("_s: 30", "_s: 1"))
    accept(tmp_path)
    assert "it did not answer initialize in 1 s" in called(tmp_path).text
    late = tmp_path / "late"
    late.mkdir()
    add(late, "up", *server("late"))
    assert called(late, timeout_s=3).value == "a"  # the time to start is none of the call


def called(project: Path, **options: Any) -> ToolResult:
    async def main() -> ToolResult:
        async with opened(project) as keep:
            keep.declare_agent("ada")
            return await keep.call("echo", {"text": "a"}, agent="ada", **options)

    return asyncio.run(main())


def test_a_denied_file_is_said_to_be_denied_and_its_grant_is_named(tmp_path: Path) -> None:
    notes = tmp_path / "docs" / "notes.txt"
    notes.parent.mkdir()
    said = refused(tmp_path, *server("needs", str(notes.parent), notes.name))
    assert "it was denied" not in said
    notes.write_text("")
    said = refused(tmp_path, *server("needs", str(notes.parent), notes.name))
    assert f"it ended with status 1; it was denied the file {notes}" in said
    assert "No such file or directory" in said
    assert f"--capability fs.read:{notes}" in said


def test_a_denied_program_names_the_grant_to_start_it(tmp_path: Path) -> None:
    program = tmp_path / "helper"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    said = refused(tmp_path, *server("spawns", str(program)))
    assert f"it was denied the program {program}" in said
    assert f"--capability process.spawn:{program}" in said
    add(tmp_path, "up", "--capability", f"process.spawn:{program}", *server("spawns", str(program)))
