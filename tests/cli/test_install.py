"""`toolkeep install`: shows the change first, keeps everything else, and writes only what was agreed to."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from toolkeep.cli.install import CLIENTS
from toolkeep.cli.main import cli


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def install(project: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["install", *words, "--project", str(project)])


def entry(project: Path, *more: str) -> dict[str, Any]:
    arguments = ["-P", "-m", "toolkeep", "mcp", "--project", str(project), "--agent", "mcp-local", *more]
    return {"command": sys.executable, "args": arguments}


@pytest.mark.spec("MCP-3")
@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_every_client_gets_an_entry_where_it_looks_for_it(project: Path, client: str) -> None:
    done = install(project, client, "--yes")
    which = CLIENTS[client]
    path = which.path(project)
    assert (done.exit_code, path.is_file()) == (0, True)
    typed = {"type": "stdio"} if which.has_type else {}
    assert json.loads(path.read_text()) == {which.key: {"toolkeep": {**typed, **entry(project)}}}


def test_nothing_is_written_before_somebody_agrees(project: Path) -> None:
    done = install(project, "claude")
    assert done.exit_code == 1
    assert '+{\n+  "mcpServers": {' in done.stdout
    assert "Nothing was written." in done.stderr
    assert list(project.iterdir()) == []


def test_what_else_stands_in_the_file_stays(project: Path) -> None:
    path = project / ".mcp.json"
    path.write_text('{"other": [1, 2], "mcpServers": {"mine": {"command": "x"}}}')
    path.chmod(0o644)
    assert install(project, "claude", "--yes", "--find-tools", "--name", "kept").exit_code == 0
    data = json.loads(path.read_text())
    assert data["other"] == [1, 2]
    assert data["mcpServers"] == {
        "mine": {"command": "x"},
        "kept": {"type": "stdio", **entry(project, "--find-tools")},
    }
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("indent", ["    ", "\t"])
def test_the_file_stays_indented_as_it_was(project: Path, indent: str) -> None:
    path = project / ".mcp.json"
    path.write_text(f'{{\n{indent}"other": 1\n}}\n')
    assert install(project, "claude", "--yes").exit_code == 0
    assert path.read_text().startswith(
        f'{{\n{indent}"other": 1,\n{indent}"mcpServers": {{\n{indent * 2}"toolkeep"'
    )


def test_nothing_that_lies_in_the_project_is_imported_by_what_a_client_starts(project: Path) -> None:
    (project / "click.py").write_text("raise SystemExit('imported from the project')")
    install(project, "claude", "--yes")
    server = json.loads((project / ".mcp.json").read_text())["mcpServers"]["toolkeep"]
    done = subprocess.run(
        [server["command"], *server["args"]],
        cwd=project,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_second_time_changes_nothing(project: Path) -> None:
    install(project, "cursor", "--yes")
    before = (project / ".cursor" / "mcp.json").read_bytes()
    done = install(project, "cursor")
    assert (done.exit_code, "is set up already" in done.stdout) == (0, True)
    assert (project / ".cursor" / "mcp.json").read_bytes() == before


@pytest.mark.parametrize(
    "text",
    [
        "{ // mine\n}",
        "[]",
        '{"servers": []}',
        "[" * 100_000,
        '"x"',
        '{"a": 1, "a": 2}',
        r'{"a": "\ud800"}',
        '{"a": NaN}',
    ],
)
def test_a_file_that_is_no_plain_object_is_left_alone(project: Path, text: str) -> None:
    path = project / ".vscode" / "mcp.json"
    path.parent.mkdir()
    path.write_text(text)
    done = install(project, "vscode", "--yes")
    assert (done.exit_code, path.read_text()) == (1, text)
    assert "ACODE-TSR-016" in done.stderr
    assert 'add this to it by hand:\n{\n  "servers": {\n    "toolkeep": {' in done.stderr


def test_an_agent_that_nobody_declared_is_named(project: Path) -> None:
    warned = "! no agent 'stranger' is declared: its calls are refused"
    assert warned in install(project, "claude", "--agent", "stranger").stderr
    assert "!" not in install(project, "claude").stderr


def test_a_link_to_itself_is_no_file(project: Path) -> None:
    (project / ".mcp.json").symlink_to(".mcp.json")
    done = install(project, "claude", "--yes")
    assert (done.exit_code, "Too many levels of symbolic links" in done.stderr) == (1, True)


def test_as_json_the_change_is_shown_as_data(project: Path) -> None:
    done = install(project, "gemini", "--json")
    data = json.loads(done.stdout)
    assert (done.exit_code, data["written"], data["before"]) == (1, False, "")
    assert json.loads(data["after"])["mcpServers"]["toolkeep"] == entry(project)
    assert json.loads(install(project, "gemini", "--json", "--yes").stdout)["written"] is True
    again = install(project, "gemini", "--json", "--yes")
    assert (again.exit_code, json.loads(again.stdout)["written"]) == (0, False)


def test_a_link_stays_a_link(project: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    (project / ".mcp.json").symlink_to(real)
    done = install(project, "claude", "--yes")
    assert (done.exit_code, f"+++ {real} (then)" in done.stdout) == (0, True)
    assert (project / ".mcp.json").is_symlink()
    assert "toolkeep" in real.read_text()
