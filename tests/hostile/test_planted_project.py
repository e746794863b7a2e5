"""A configuration that a tool left below a project takes nobody away from the project's policies (REG-5).

A confined tool that may write the project cannot change a `.agent` that is there, but can make another one in
a folder below. What it says needs no acceptance: it runs, grants and loosens nothing.
"""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.config.projects import accept, configure
from toolkeep import open_keep
from toolkeep.cli.main import cli
from toolkeep.errors import NotAccepted

pytestmark = pytest.mark.spec("REG-5")

POLICIES = """\
@id("everyone-calls")
permit (principal, action == Action::"call", resource);
@id("wages")
forbid (principal, action == Action::"call", resource == Tool::"read_file");
"""
READ = ["call", "read_file", '{"path": "wages.txt"}']
COMMANDS = (
    ["accept"], ["add", "mcp", "x", "--", sys.executable], ["approvals", "list"], ["audit", "list"], ["audit", "verify"],
    ["backup", "make", "b.zip"], READ, ["disable", "read_file"], ["enable", "read_file"], ["install", "claude", "--yes"],
    ["lint"], ["list"], ["lock"], ["mcp"], ["policy", "check"], ["remove", "x"], ["serve"], ["show", "read_file"],
    ["sign-in", "x"], ["store", "status"], ["token", "list"], ["validate", "read_file", "{}"],
)  # fmt: skip


@pytest.fixture
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the file was left in, as working folder."""
    configure(tmp_path, POLICIES, name=".agent/main.cedar")
    configure(tmp_path, "policies: [main.cedar]\n")
    accept(tmp_path)
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / "wages.txt").write_text("1000")
    monkeypatch.chdir(folder)
    assert "Policy 'wages' forbids it" in run(READ).output
    configure(folder, "disabled_tools: []\n")
    return folder


def run(words: list[str]) -> Result:
    return CliRunner().invoke(cli, words)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: "-".join(words[:2]))
def test_no_command_takes_a_file_below_a_project_for_the_project(words: list[str], below: Path) -> None:
    done = run(words)
    assert done.exit_code == 1
    for said in ("ACODE-TSR-024", f"{below}/.agent/config.yml", f"{below.parent}/.agent/config.yml"):
        assert said in done.output
    assert sorted(path.name for path in below.iterdir()) == [".agent", "wages.txt"]


def test_nor_does_a_program_that_names_no_project(below: Path) -> None:
    with pytest.raises(NotAccepted):
        open_keep()


def test_the_policies_hold_where_the_outer_project_is_named(below: Path) -> None:
    outer = ["--project", str(below.parent)]
    done = run([*READ, *outer])
    assert (done.exit_code, "Policy 'wages' forbids it" in done.output) == (1, True)


def test_without_the_question_the_policies_are_gone(below: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolkeep.keep.open.outer_projects", lambda *_: [])
    done = run(READ)
    assert (done.exit_code, "1000" in done.output) == (0, True)
