"""`toolkeep danger`: a person sets the danger of tools, which is recorded."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from toolkeep import open_keep
from toolkeep.cli.main import cli
from toolkeep.storage.log.audit_log import AuditLog

TOOLS = """\
tools:
  custom:
    - {name: one, description: Counts one thing., version: 1.0.0, effects: reads}
    - {name: two, description: Counts two things., version: 1.0.0, effects: reads}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    (folder / ".agent").mkdir(parents=True)
    (folder / ".agent" / "config.yml").write_text(TOOLS)
    return folder


def run(project: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["danger", *arguments, "--project", str(project)])


def dangers(project: Path) -> dict[str, str]:
    with open_keep(project=project, built_in=False) as keep:
        return {tool.name: tool.danger.value for tool in keep.tools()}


def test_the_danger_of_tools_is_set_by_the_hash_of_the_preview_and_taken_back(
    project: Path, tmp_path: Path
) -> None:
    before = dangers(project)
    asked = run(project, "high", "one", "two")
    assert asked.exit_code == 1
    assert dangers(project) == before
    digest = asked.stderr.split("--hash ")[1].split()[0]
    assert "the hash is another one" in run(project, "high", "one", "--hash", digest).stderr
    assert run(project, "high", "one", "two", "--hash", digest).exit_code == 0
    assert dangers(project) == {"one": "high", "two": "high"}
    with AuditLog(tmp_path / "state") as log:
        records: list[Any] = [one.record for one in log.read() if one.record["type"] == "OperatorChange"]
    assert [(one["what"], one["name"], one["way"]) for one in records] == [
        ("danger", "one", "terminal"),
        ("danger", "two", "terminal"),
    ]
    assert all(one["person"].startswith("operator:") for one in records)
    asked = run(project, "own", "one")
    digest = asked.stderr.split("--hash ")[1].split()[0]
    done = run(project, "own", "one", "--hash", digest, "--json")
    assert json.loads(done.stdout)[0]["after"] == before["one"]
    assert "nothing would change" in run(project, "own", "one").stderr
