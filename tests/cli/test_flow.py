"""`toolkeep flow`: a person declares roles and labels of imported tools, which is recorded."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.server.web.test_flow_page import DECLARED, configured
from toolkeep import open_keep
from toolkeep.cli.approval_prompt import person
from toolkeep.cli.main import cli
from toolkeep.storage.log.audit_log import AuditLog

pytestmark = pytest.mark.spec("FLO-1", "WEB-2")

WORDS = ("tell", "/to=destination", "/note=content", f"result:={json.dumps(DECLARED['result'])}")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    configured(folder)
    return folder


def run(project: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["flow", *arguments, "--project", str(project)], catch_exceptions=False)


def declared(project: Path) -> Any:
    with open_keep(project=project, built_in=False) as keep:
        return keep.declared_flow("tell")


def digest(asked: Result) -> str:
    assert asked.exit_code == 1
    return asked.stderr.split("--hash ")[1].split()[0]


def test_a_declaration_is_made_by_the_hash_of_its_preview_and_taken_back(
    project: Path, tmp_path: Path
) -> None:
    asked = run(project, "declare", *WORDS)
    assert "+/text: text, written by anybody; only the user may know it.\n" in asked.stderr
    other = run(project, "declare", *WORDS[:3], "--hash", digest(asked))
    assert "the hash is another one" in other.stderr
    assert declared(project) is None
    assert run(project, "declare", *WORDS, "--hash", digest(asked)).stdout == "✓ tell: declared\n"
    assert declared(project) == DECLARED
    view = json.loads(run(project, "show", "tell", "--json").stdout)
    assert (view["declared"], view["is_stored"]) == (DECLARED, True)
    asked = run(project, "drop", "tell")
    done = run(project, "drop", "tell", "--hash", digest(asked), "--json")
    assert json.loads(done.stdout)["is_done"]
    assert declared(project) is None
    assert "nobody declared the flow of 'tell'" in run(project, "drop", "tell").stderr
    with AuditLog(tmp_path / "state") as log:
        records: list[Any] = [one.record for one in log.read() if one.record["type"] == "OperatorChange"]
    assert [(one["what"], one["name"], one["way"], one["person"]) for one in records] == [
        ("flow", "tell", "terminal", f"operator:{person()}")
    ] * 2


def test_what_is_declared_is_shown_with_what_counts_without_it(project: Path) -> None:
    assert run(project, "show", "tell").stdout == (
        "Declared by the configuration or the upstream:\n"
        "  Argument note: option, how the call is carried out; nobody is asked about its value.\n"
        "Not declared, and counts as:\n"
        "  /to: record\n"
        "  /key: credential\n"
        "  result /id: text, written by anybody\n"
        "  result /text: text, written by anybody\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tell", "/to=boss"), "'boss' is not one of"),
        (("tell", "[]"), "It is no JSON object"),
        (("tell",), "Missing argument"),
        (("nobody", "/to=content"), "there is no such"),
    ],
)
def test_what_cannot_be_declared_is_said(project: Path, arguments: tuple[str, ...], said: str) -> None:
    result = run(project, "declare", *arguments)
    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert declared(project) is None
