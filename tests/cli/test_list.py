"""`toolkeep list`: readable on a terminal of any width, and what it says beside the list."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.terminal import on_a_terminal
from toolkeep import open_keep
from toolkeep.cli.main import cli

LONG_NAME = "counts_every_thing_there_is"


@pytest.mark.parametrize("columns", [20, 40, 59, 60, 80, 99, 100, 200])
def test_names_are_never_broken_whatever_the_width(columns: int, tmp_path: Path) -> None:
    (tmp_path / ".agent").mkdir()
    tool = f"{{name: {LONG_NAME}, description: {'Counts. ' * 20}, version: 1.0.0, effects: none}}"
    (tmp_path / ".agent" / "config.yml").write_text(f"tools: {{custom: [{tool}]}}\n")
    shown = on_a_terminal(["list", "--project", str(tmp_path)], COLUMNS=str(columns), TERM="xterm")
    (row,) = (line for line in shown.replace("\r", "").split("\n") if LONG_NAME in line)
    assert ("enabled" in row, "custom" in row) == (True, True)
    assert ("\u2500" in shown) is (columns >= 60)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_tool_takes_one_line_of_a_table(columns: int, tmp_path: Path) -> None:
    shown = on_a_terminal(["list", "--project", str(tmp_path)], COLUMNS=str(columns), TERM="xterm")
    lines = [line for line in shown.splitlines() if line.strip()]
    (rule,) = (at for at, line in enumerate(lines) if "\u2500" in line)
    assert (rule, len(lines)) == (1, 2 + len(open_keep().tools()) + 1)


def test_what_is_disabled_and_no_tool_is_called_is_a_line_on_stderr(tmp_path: Path) -> None:
    (tmp_path / ".agent").mkdir()
    path = tmp_path / ".agent" / "config.yml"
    path.write_text("disabled_tools: [agent_hello_word, agent_hello_world]\n")
    result = CliRunner().invoke(cli, ["list", "--json", "--project", str(tmp_path)])
    assert result.exit_code == 0
    assert result.stderr == f"! agent_hello_word: no tool is called that (disabled in {path}:1:18)\n"
