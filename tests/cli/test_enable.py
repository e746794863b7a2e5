"""`toolkeep enable` and `toolkeep disable`: several names at once, all or none."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from toolkeep import open_keep
from toolkeep.cli.main import cli

TOOLS = """\
tools:
  custom:
    - {name: one, description: Counts one thing., version: 1.0.0}
    - {name: two, description: Counts two things., version: 1.0.0}
    - {name: shut, description: Counts nothing., version: 1.0.0}
disabled_tools: [shut]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent" / "config.yml").write_text(TOOLS)
    return tmp_path


def run(project: Path, *arguments: str) -> int:
    return CliRunner().invoke(cli, [*arguments, "--project", str(project)]).exit_code


def enabled(project: Path) -> list[str]:
    """What answers at the next start."""
    return [tool.name for tool in open_keep(project=project, built_in=False).tools(enabled=True)]


@pytest.mark.parametrize("names", [("one", "TWO"), ("one", "two@1.0.0", "one")])
def test_several_names_are_switched_together(project: Path, names: tuple[str, ...]) -> None:
    assert run(project, "disable", *names) == 0
    assert enabled(project) == []
    assert run(project, "enable", *names) == 0
    assert enabled(project) == ["one", "two"]


@pytest.mark.parametrize("names", [("one", "nobody"), ("nobody", "one"), ("one", "two@9.0.0")])
def test_where_one_name_cannot_be_disabled_none_is(project: Path, names: tuple[str, ...]) -> None:
    assert run(project, "disable", *names) == 1
    assert enabled(project) == ["one", "two"]


@pytest.mark.parametrize("names", [("one", "shut"), ("shut", "one"), ("one", "two", "nobody")])
def test_where_one_name_cannot_be_enabled_none_is(project: Path, names: tuple[str, ...]) -> None:
    assert run(project, "disable", "one", "two") == 0
    assert run(project, "enable", *names) == 1
    assert enabled(project) == []


def test_a_tool_of_a_file_that_a_server_was_started_with_is_disabled_by_naming_the_file(
    tmp_path: Path,
) -> None:
    code = tmp_path / "greetings.py"
    code.write_text('from toolkeep import tool\n@tool(side_effects=[])\ndef greet() -> str:\n    "Greets."\n')
    named = ("--tools", str(code), "--project", str(tmp_path))

    def run(*words: str) -> Any:
        done = CliRunner().invoke(cli, [*words, "--json"])
        return json.loads(done.stdout)

    assert run("disable", "greet", *named)["code"] == "ACODE-TSR-024"  # nobody accepted the file
    accepted = ("accept", str(code), "--project", str(tmp_path))
    run(*accepted, "--hash", run(*accepted)["hash"])
    assert run("disable", "greet", *named)[0]["state"] == "disabled"
    (listed,) = (one for one in run("list", *named) if one["name"] == "greet")
    assert listed["state"] == "disabled"
