"""`toolkeep list`: readable on a terminal of any width, and what it says beside the list."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.terminal import on_a_terminal
from toolkeep import open_keep
from toolkeep.cli.main import cli

LONG_NAME = "counts_every_thing_there_is"


@pytest.mark.spec("CLI-1")
@pytest.mark.parametrize("columns", [20, 80, 200])
def test_name_danger_and_state_are_never_cut_whatever_the_width(columns: int, tmp_path: Path) -> None:
    (tmp_path / ".agent").mkdir()
    tool = f"{{name: {LONG_NAME}, description: {'Counts. ' * 20}, version: 1.0.0, effects: none}}"
    (tmp_path / ".agent" / "config.yml").write_text(f"tools: {{custom: [{tool}]}}\n")
    shown = on_a_terminal(["list", "--project", str(tmp_path)], COLUMNS=str(columns), TERM="xterm")
    lines = [line for line in shown.splitlines() if line.strip()]
    (row,) = (line for line in lines if LONG_NAME in line)
    assert row.split()[1:3] == ["safe", "enabled"]
    assert lines[0].split()[:3] == ["NAME", "DANGER", "STATE"]
    assert len(lines) == 1 + len(open_keep().tools()) + 1 + 1
    assert len(row) <= max(columns, len(LONG_NAME) + len("  DANGER  enabled"))


def test_a_skipped_tool_of_a_file_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "mixed.json"
    file.write_text('[{"name": "fit", "description": "Fit."}, {"name": "Unfit", "description": "Not."}]')
    result = CliRunner().invoke(cli, ["list", "-f", str(file), "--project", str(tmp_path)])
    assert f"Total: {len(open_keep().tools()) + 1} tools (1 skipped)\n" in result.stdout
    assert result.stderr.count("! skipped 'Unfit'") == 1


def test_what_is_disabled_and_no_tool_is_called_is_a_line_on_stderr(tmp_path: Path) -> None:
    (tmp_path / ".agent").mkdir()
    path = tmp_path / ".agent" / "config.yml"
    path.write_text("disabled_tools: [agent_hello_word, agent_hello_world]\n")
    result = CliRunner().invoke(cli, ["list", "--json", "--project", str(tmp_path)])
    assert result.exit_code == 0
    assert result.stderr == f"! agent_hello_word: there is no such tool (disabled in {path}:1:18)\n"
