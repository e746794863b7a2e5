"""`toolkeep new` writes tools whose tests pass at once, and which read as our own code does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.terminal import on_a_terminal
from toolkeep.cli.main import cli


def made(folder: Path, *arguments: str) -> None:
    result = CliRunner().invoke(cli, ["new", "word_count", "--folder", str(folder), *arguments])
    assert (result.exit_code, result.stderr) == (0, "")


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("arguments", [(), ("--class",)], ids=["function", "class"])
def test_the_tests_of_a_new_tool_pass_at_once(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    made(tmp_path, *arguments)
    done = run(tmp_path, "pytest", "-q", "-W", "error", "-p", "no:cacheprovider")
    assert "3 passed" in done.stdout, done.stdout


def test_new_tools_are_typed_and_lint_has_nothing_to_say(tmp_path: Path) -> None:
    for arguments, folder in (((), tmp_path / "function"), (("--class",), tmp_path / "class")):
        folder.mkdir()
        made(folder, *arguments)
        code = (
            "import word_count, toolkeep\n"
            "from toolkeep.authoring.lint_rules import lint_definition\n"
            "keep = toolkeep.open_keep(built_in=False)\n"
            "keep.register(getattr(word_count, 'word_count', None) or word_count.WordCountTool)\n"
            "print(list(lint_definition(keep.get('word_count').definition)))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
        )
        assert (done.stdout, done.stderr) == ("[]\n", "")
        # The second run reads the types of the package from the cache of the first.
        typed = run(folder, "mypy", "--strict", f"--cache-dir={tmp_path / 'cache'}", ".")
        assert typed.returncode == 0, typed.stdout


def test_nothing_is_written_when_one_of_the_files_exists(tmp_path: Path) -> None:
    (tmp_path / "test_word_count.py").write_text("mine")
    result = CliRunner().invoke(cli, ["new", "word_count", "--folder", str(tmp_path)])
    assert result.exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["test_word_count.py"]
    assert (tmp_path / "test_word_count.py").read_text() == "mine"


TAKEN = ("json", "typing", "logging", "print", "list", "toolkeep", "pydantic", "pytest", "tool", "open_keep", "check_tool", "test_words", "test_")  # fmt: skip
"""What would hide a module or function that the tool or its tests need."""


@pytest.mark.parametrize("name", ["Word", "1st", "run", "class", "a-b", "../x", "a" * 65, "", *TAKEN])
def test_a_name_that_cannot_be_is_wrong_usage(tmp_path: Path, name: str) -> None:
    result = CliRunner().invoke(cli, ["new", name, "--folder", str(tmp_path)])
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spec("REG-5")
def test_in_a_project_a_new_tool_can_be_called_at_once(tmp_path: Path) -> None:
    on_a_terminal(["init", "--project", str(tmp_path)])
    shown = on_a_terminal(["new", "word_count"], cwd=str(tmp_path))
    assert "and accepted that" in shown
    words = ["call", "word_count", "text=two words", "--json", "--project", str(tmp_path)]
    result = CliRunner().invoke(cli, words)
    assert json.loads(result.stdout)["value"] == {"words": 2}
