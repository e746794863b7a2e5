"""`toolkeep lock`: what was accepted, written down for others; from a clone it is a proposal."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.upstreams import DOCUMENT, accept, added, change, imports, toolkeep

pytestmark = pytest.mark.spec("REG-3")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return added(tmp_path)


def renamed(name: str) -> dict[str, Any]:
    """The paths with an operation under another name."""
    return json.loads(json.dumps(DOCUMENT["paths"]).replace("getBook", name))  # type: ignore[no-any-return]


def test_what_was_accepted_is_written_and_agrees(project: Path) -> None:
    result = toolkeep(project, "lock")
    assert (result.exit_code, "wrote 2 tools" in result.stdout) == (0, True), result.output
    raw = (project / "toolkeep.lock").read_bytes()
    assert [json.loads(line).get("tool") for line in raw.splitlines()] == [None, None, "getbook", "listbooks"]
    assert toolkeep(project, "lock", "--check").exit_code == 0
    assert toolkeep(project, "lock").exit_code == 0
    assert (project / "toolkeep.lock").read_bytes() == raw
    assert imports(project) == {"getBook": "enabled", "listBooks": "enabled"}


def test_check_needs_no_acceptance_and_tells_the_differences(project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:  # fmt: skip
    toolkeep(project, "lock")
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path_factory.mktemp("ci")))
    assert toolkeep(project, "lock", "--check").exit_code == 0
    change(project, paths=renamed("fetchBook"))
    result = toolkeep(project, "lock", "--check")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == "openapi:book_shop getbook: renamed to 'fetchbook' (major)"
    data = json.loads(toolkeep(project, "lock", "--check", "--json").stdout)
    assert (data["success"], data["differences"][0]["tool"]) == (False, "getbook")
    assert imports(project) == {}


def test_a_clone_with_a_lock_holds_its_tools_until_a_person_accepts_it(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    toolkeep(project, "lock")
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path_factory.mktemp("another")))
    assert accept(project).exit_code == 0
    assert imports(project) == {"getBook": "quarantined", "listBooks": "quarantined"}
    shown = accept(project)
    assert "openapi:book_shop getbook: new (minor)" in shown.stdout
    assert imports(project) == {"getBook": "enabled", "listBooks": "enabled"}


def test_the_hint_about_a_broken_lock_leads_to_a_new_one(project: Path) -> None:
    toolkeep(project, "lock")
    lock = project / "toolkeep.lock"
    raw = lock.read_bytes()
    lock.write_bytes(b"<<<<<<< HEAD\n" + raw)
    refused = toolkeep(project, "lock")
    assert refused.exit_code == 1
    assert (
        "hint: restore the committed file; or delete it and write a new one: toolkeep lock" in refused.stderr
    )
    lock.unlink()
    assert "hint: write it: toolkeep lock" in toolkeep(project, "lock", "--check").stderr
    assert toolkeep(project, "lock").exit_code == 0
    assert lock.read_bytes() == raw


def test_a_lock_edited_by_hand_stops_the_start(project: Path) -> None:
    toolkeep(project, "lock")
    path = project / "toolkeep.lock"
    path.write_text(path.read_text().replace("One book.", "Any book."))
    result = toolkeep(project, "list")
    assert (result.exit_code, "ACODE-TSR-075" in result.stderr) == (1, True)
    assert toolkeep(project, "lock", "--check").exit_code == 1


def test_a_line_taken_out_of_a_lock_holds_the_tool(project: Path) -> None:
    toolkeep(project, "lock")
    path = project / "toolkeep.lock"
    path.write_text(
        "".join(line for line in path.read_text().splitlines(keepends=True) if '"getbook"' not in line)
    )
    assert imports(project) == {"getBook": "quarantined", "listBooks": "enabled"}
    result = toolkeep(project, "lock", "--check")
    assert result.stdout == "openapi:book_shop getbook: new (minor)\n"


def test_a_changed_tool_is_accepted_by_name_and_then_locked(project: Path) -> None:
    toolkeep(project, "lock")
    paths = json.loads(json.dumps(DOCUMENT["paths"]).replace("One book.", "A book."))
    change(project, paths=paths)
    assert accept(project).exit_code == 0
    assert imports(project) == {"getBook": "quarantined", "listBooks": "enabled"}
    shown = json.loads(toolkeep(project, "accept", "getBook", "--json").stdout)
    assert [change["what"] for change in shown["changes"]] == ["changed"]
    result = toolkeep(project, "accept", "getBook", "--hash", shown["hash"])
    assert "toolkeep.lock still has the previous definition" in result.stderr
    assert imports(project)["getBook"] == "quarantined"
    assert toolkeep(project, "lock").exit_code == 0
    assert imports(project) == {"getBook": "enabled", "listBooks": "enabled"}
    assert toolkeep(project, "lock", "--check").exit_code == 0


@pytest.mark.parametrize(
    ("old", "new"), [("/books/{id}", "/admin/{id}"), ('"in": "path"', '"in": "path", "style": "label"')]
)
def test_an_operation_that_asks_for_something_else_is_another_one(project: Path, old: str, new: str) -> None:
    toolkeep(project, "lock")
    change(project, paths=json.loads(json.dumps(DOCUMENT["paths"]).replace(old, new)))
    lines = toolkeep(project, "lock", "--check").stdout.splitlines()
    assert lines == [
        "openapi:book_shop getbook: changed (major)",
        "  metadata/request: asks for something else, or asks otherwise (major)",
    ]
    accept(project)
    assert imports(project) == {"getBook": "quarantined", "listBooks": "enabled"}
    shown = json.loads(toolkeep(project, "accept", "getBook", "--json").stdout)
    assert shown["version"] == "2.0.0"


def test_a_lock_holds_where_an_upstream_is_as_the_file_says_it_and_no_variable(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project / ".agent" / "config.yml"
    path.write_text(path.read_text().replace("https://shop.example/v1", "https://shop.example/${WHERE:-v1}"))
    accept(project)
    monkeypatch.setenv("WHERE", "v1")
    assert toolkeep(project, "lock").exit_code == 0
    identity = json.loads((project / "toolkeep.lock").read_text().splitlines()[1])["identity"]
    assert identity["url"] == "https://shop.example/${WHERE:-v1}"


def test_asking_goes_with_checking(project: Path) -> None:
    assert toolkeep(project, "lock", "--ask").exit_code == 2


def test_what_waits_is_not_written_and_named(project: Path) -> None:
    assert imports(project) == {"getBook": "enabled", "listBooks": "enabled"}
    change(project, paths=renamed("fetchBook"))
    accept(project)
    result = toolkeep(project, "lock")
    assert "'fetchbook' needs acceptance: toolkeep accept fetchbook" in result.stderr
    assert '"fetchbook"' not in (project / "toolkeep.lock").read_text()


def test_without_upstreams_there_is_nothing_to_lock(tmp_path: Path) -> None:
    result = toolkeep(tmp_path, "lock")
    assert (result.exit_code, "has no upstream" in result.stderr) == (1, True)


def test_without_a_lock_there_is_nothing_to_check(project: Path) -> None:
    result = toolkeep(project, "lock", "--check")
    assert (result.exit_code, "the file does not exist" in result.stderr) == (1, True)


@pytest.mark.parametrize("content", [b"", b"<<<<<<< ours\n", b"{}"])
def test_a_broken_lock_is_no_lock(project: Path, content: bytes) -> None:
    (project / "toolkeep.lock").write_bytes(content)
    assert toolkeep(project, "list").exit_code == 1
