"""`toolkeep undo` takes back what calls wrote, each after a person has seen the difference."""

import asyncio
from pathlib import Path

import pytest

from tests.cli.dialogue import Dialogue
from tests.cli.plainly import data, run
from toolkeep import Answer, Question, open_keep

pytestmark = pytest.mark.spec("TLS-4")

CONFIG = """\
agents:
  operator:
    capabilities: ["fs.read:.", "fs.write:."]
    permissions: [tool.filesystem.write]
"""
PROMPT = "[n]o [reason]: "


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (Path.home() / ".agent").mkdir(parents=True, exist_ok=True)
    (Path.home() / ".agent" / "config.yml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("one\n")
    return tmp_path


def write(*written: tuple[str, str], session: str = "s") -> list[str]:
    """The ids of the calls that wrote."""

    async def agree(_: Question) -> Answer:
        return Answer(verdict="approve", approver="test:ada", way="program")

    async def main() -> list[str]:
        made = []
        async with open_keep(project=Path.cwd(), approver=agree) as keep:
            for path, content in written:
                arguments = {"path": path, "content": content}
                result = await keep.call("write_file", arguments, agent="operator", session=session)
                assert result.ok, result.text
                made.append(result.call_id)
        return made

    return asyncio.run(main())


def answered(project: Path, words: list[str], *answers: str) -> tuple[int, str]:
    """Exit status, and all that was shown to a person who answers so."""
    with Dialogue(["undo", *words], cwd=project) as dialogue:
        for answer in answers:
            dialogue.until(PROMPT)
            dialogue.enter(f"{answer}\n")
        status, _ = dialogue.end()
        return status, dialogue.shown


def test_a_call_is_taken_back_by_a_prefix_of_its_id_after_its_difference_was_shown(project: Path) -> None:
    (call,) = write(("a.txt", "two\n"))
    status, shown = answered(project, [call[:12]], "n")
    assert (status, (project / "a.txt").read_text()) == (1, "two\n")
    assert "-two" in shown
    assert "+one" in shown
    status, shown = answered(project, [call[:12]], "y")
    assert (status, (project / "a.txt").read_text()) == (0, "one\n")
    assert "taken back by call" in run("undo", call, status=1).stderr


def test_a_dry_run_changes_nothing_and_says_what_would_change(project: Path) -> None:
    calls = write(("a.txt", "two\n"), ("new.txt", "x"))
    shown = run("undo", "--session", "s", "--dry-run").stdout
    assert "new.txt would be removed" in shown
    assert "-two\n+one" in shown
    planned = data("undo", "--session", "s", "--dry-run")
    assert [(one["call"], one["tool"], one["obstacle"]) for one in planned] == [
        (call, "write_file", "") for call in reversed(calls)
    ]
    assert ((project / "a.txt").read_text(), (project / "new.txt").read_text()) == ("two\n", "x")


def test_a_session_is_taken_back_the_newest_first_and_no_further_than_the_first_failure(
    project: Path,
) -> None:
    write(("a.txt", "two\n"), ("b.txt", "b"), ("c.txt", "c"))
    write(("other.txt", "o"), session="other")
    (project / "b.txt").write_text("by a person")
    assert (
        "cannot be taken back: the file has changed since"
        in run("undo", "--session", "s", "--dry-run").stdout
    )
    status, shown = answered(project, ["--session", "s"], "y", "y")
    assert status == 1
    assert "has changed since" in shown
    left = {one.name: one.read_text() for one in project.glob("*.txt")}
    assert left == {"a.txt": "two\n", "b.txt": "by a person", "other.txt": "o"}
    (project / "b.txt").write_text("b")
    assert answered(project, ["--session", "s"], "y", "y")[0] == 0  # what was taken back is passed over
    assert {one.name: one.read_text() for one in project.glob("*.txt")} == {
        "a.txt": "one\n",
        "other.txt": "o",
    }


def test_without_a_person_nothing_is_taken_back(project: Path) -> None:
    (call,) = write(("a.txt", "two\n"))
    assert "approv" in run("undo", call, status=1).output
    assert (project / "a.txt").read_text() == "two\n"


def test_what_was_not_kept_here_is_said(project: Path) -> None:
    (call,) = write(("a.txt", "two\n"))
    assert "on this server" in run("undo", "--session", "none", status=1).stderr
    assert "the log has no call" in run("undo", "0" * 32, status=1).stderr
    assert "not both" in run("undo", call, "--session", "s", status=2).stderr
    assert "not declared" in run("undo", call, "--agent", "nobody", status=2).stderr
