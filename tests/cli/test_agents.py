"""`toolkeep agents`: list what agents hold, withdraw it and restore it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from toolkeep import open_keep
from toolkeep.cli.main import cli

CONFIGURATION = "agents:\n  helper: {capabilities: ['fs.read:.', 'fs.write:./out']}\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    (home / ".agent").mkdir(parents=True)
    (home / ".agent" / "config.yml").write_text(CONFIGURATION)
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def run(project: Path, *words: str) -> tuple[int, str]:
    ran = CliRunner().invoke(cli, ["agents", *words, "--project", str(project)])
    return ran.exit_code, ran.output


def test_what_is_withdrawn_is_shown_and_can_be_restored(project: Path) -> None:
    assert run(project, "withdraw", "helper", "fs.write")[0] == 0
    code, said = run(project, "list", "--json")
    (helper,) = (one for one in json.loads(said) if one["agent"] == "helper")
    assert (code, helper["capabilities"], helper["withdrawn"]) == (0, ["fs.read:."], ["fs.write"])
    assert "fs.write" in run(project)[1]
    assert run(project, "withdraw", "helper") == (0, "✓ everything of helper is withdrawn\n")
    for words in (("helper",), ("helper", "fs.write")):
        assert run(project, "restore", *words)[0] == 0
    assert json.loads(run(project, "list", "--json")[1])[-1] != helper


def test_an_agent_is_shown_with_what_it_may_do_with_each_tool(project: Path) -> None:
    code, said = run(project, "show", "helper", "--json")
    shown = json.loads(said)
    assert (code, shown["holds"]) == (0, ["read files in the project folder", "write files in ./out"])
    (access,) = (one for one in shown["tools"] if one["tool"] == "read_file")
    assert (access["verdict"], access["why"]) == ("deny", "the agent lacks tool.filesystem.read")
    assert "agent_hello_world  allowed" in run(project, "show", "helper")[1]
    (read,) = (line for line in run(project, "show", "operator")[1].splitlines() if "read_file" in line)
    assert "nobody is asked; it may read files in the project folder; other paths are denied" in read
    assert run(project, "show", "nobody")[0] == 1


@pytest.mark.parametrize("words", [("nobody",), ("helper", "net.read"), ("helper", "fs.write:./other")])
def test_what_nobody_holds_is_refused(project: Path, words: tuple[str, ...]) -> None:
    code, said = run(project, "withdraw", *words)
    assert code == 1
    assert "not declared" in said or "holds no" in said


def test_the_log_says_who_withdrew_and_restored_what(project: Path) -> None:
    for action in ("withdraw", "restore"):
        assert run(project, action, "helper", "fs.write")[0] == 0
    with open_keep(project=project) as keep:
        found = [one.record for one in keep.record.log.read_back() if one.record["type"] == "OperatorChange"]
    assert [(one["what"], one["name"], one["way"], one["difference"]) for one in found] == [
        ("grant", "helper", "terminal", "restore: fs.write\n+fs.write:./out"),
        ("grant", "helper", "terminal", "withdraw: fs.write\n-fs.write:./out"),
    ]
    assert all(one["person"].startswith("operator:") for one in found)
