"""`toolkeep install`: shows the change first, keeps everything else, and writes only what was agreed to."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.dialogue import Dialogue
from toolkeep.cli.install import CLIENTS
from toolkeep.cli.main import cli


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def install(project: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["install", *words, "--project", str(project)])


def entry(project: Path, *more: str) -> dict[str, Any]:
    arguments = ["-P", "-m", "toolkeep", "mcp", "--project", str(project), "--agent", "mcp-local", *more]
    return {"command": sys.executable, "args": arguments}


@pytest.mark.spec("MCP-3")
@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_every_client_gets_an_entry_where_it_looks_for_it(project: Path, client: str) -> None:
    done = install(project, client, "--yes")
    which = CLIENTS[client]
    path = which.path(project)
    assert (done.exit_code, path.is_file()) == (0, True)
    typed = {"type": "stdio"} if which.has_type else {}
    assert json.loads(path.read_text()) == {which.key: {"toolkeep": {**typed, **entry(project)}}}


def test_nothing_is_written_before_somebody_agrees(project: Path) -> None:
    done = install(project, "claude")
    assert done.exit_code == 1
    assert '+{\n+  "mcpServers": {' in done.stdout
    assert "Nothing was written." in done.stderr
    assert list(project.iterdir()) == []


def test_what_else_stands_in_the_file_stays(project: Path) -> None:
    path = project / ".mcp.json"
    path.write_text('{"other": [1, 2], "mcpServers": {"mine": {"command": "x"}}}')
    path.chmod(0o644)
    assert install(project, "claude", "--yes", "--find-tools", "--name", "kept").exit_code == 0
    data = json.loads(path.read_text())
    assert data["other"] == [1, 2]
    assert data["mcpServers"] == {
        "mine": {"command": "x"},
        "kept": {"type": "stdio", **entry(project, "--find-tools")},
    }
    assert path.stat().st_mode & 0o777 == 0o644


# Line ends, short lists, escapes and digits: whoever reads a file and writes it anew loses them.
BY_HAND = (
    b'{\r\n    "mcpServers": {\r\n        "mine": {"command": "x", "args": ["\\u00e9", "\\ud800"]}\r\n    },\r\n'
    b'    "big": 1.0000000000000000001e2, "list": [1,2 , 3]\r\n}'
)


def test_every_other_byte_of_the_file_stays_and_the_way_back_leads_to_the_same_file(project: Path) -> None:
    path = project / ".mcp.json"
    path.write_bytes(BY_HAND)
    assert install(project, "claude", "--yes").exit_code == 0
    start, end = BY_HAND.split(b"]}\r\n")
    written = path.read_bytes()
    assert written.startswith(start + b']},\r\n        "toolkeep": {\r\n            "type": "stdio",\r\n')
    assert written.endswith(b"\r\n        }\r\n" + end)
    removed = install(project, "claude", "--remove", "--yes")
    assert (removed.exit_code, path.read_bytes()) == (0, BY_HAND)
    assert f"wrote {path}; restart Claude Code to let go of it" in removed.stdout


def test_what_is_removed_is_shown_and_agreed_to_first(project: Path) -> None:
    install(project, "claude", "--yes")
    path = project / ".mcp.json"
    before = path.read_bytes()
    done = install(project, "claude", "--remove")
    assert (done.exit_code, path.read_bytes()) == (1, before)
    assert '-    "toolkeep": {' in done.stdout
    assert "Nothing was written." in done.stderr


@pytest.mark.parametrize("text", ["", "{}", '{"mcpServers": {"mine": {}}}'])
def test_what_is_not_there_need_not_be_removed(project: Path, text: str) -> None:
    path = project / ".mcp.json"
    path.write_text(text)
    done = install(project, "claude", "--remove", "--name", "kept", "--yes")
    assert (done.exit_code, path.read_text()) == (0, text)
    assert done.stdout == f"✓ Claude Code has no 'kept': {path}\n"


def test_what_cannot_be_removed_safely_is_left_to_a_person(project: Path) -> None:
    path = project / ".mcp.json"
    path.write_text('{"mcpServers": {"toolkeep": {}} /* mine */}')
    done = install(project, "claude", "--remove", "--yes")
    assert (done.exit_code, path.read_text()) == (1, '{"mcpServers": {"toolkeep": {}} /* mine */}')
    assert "is no plain JSON; remove 'toolkeep' under 'mcpServers' by hand" in done.stderr


@pytest.mark.parametrize("words", [[], ["--remove"], ["--yes"]])
def test_a_dry_run_shows_the_change_and_writes_nothing(project: Path, words: list[str]) -> None:
    path = project / ".mcp.json"
    path.write_text('{"mcpServers": {"toolkeep": {}}}')
    done = install(project, "claude", "--dry-run", *words)
    assert (done.exit_code, path.read_text()) == (0, '{"mcpServers": {"toolkeep": {}}}')
    assert '-{"mcpServers": {"toolkeep": {}}}' in done.stdout
    assert done.stderr == "Nothing was written.\n"
    as_json = install(project, "claude", "--dry-run", "--json", *words)
    assert (as_json.exit_code, json.loads(as_json.stdout)["written"]) == (0, False)
    assert path.read_text() == '{"mcpServers": {"toolkeep": {}}}'


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\udcff"])
def test_a_name_that_nobody_can_read_is_wrong_usage(project: Path, name: str) -> None:
    for option in ("--name", "--agent"):
        done = install(project, "claude", "--yes", option, name)
        assert (done.exit_code, list(project.iterdir())) == (2, [])
        assert f"'{option}': is no name that a person could read" in done.stderr


def test_a_folder_that_json_cannot_name_is_refused(tmp_path: Path) -> None:
    project = tmp_path / "books\udcff"
    project.mkdir()
    done = install(project, "claude", "--yes")
    assert (done.exit_code, list(project.iterdir())) == (1, [])
    assert done.stderr.endswith("its name is not UTF-8; rename it\n")


@pytest.mark.parametrize("keys", ["n\n", "\x03", "\x04"])
def test_at_the_prompt_ctrl_c_and_the_end_of_input_are_a_no(project: Path, keys: str) -> None:
    with Dialogue(["install", "claude", "--project", str(project)], cwd=project) as person:
        person.until("Write this? [y/N]: ")
        person.enter(keys)
        status, shown = person.end()
    assert (status, list(project.iterdir())) == (1, [])
    assert shown.endswith("\nNothing was written.\n")


@pytest.mark.parametrize("indent", ["    ", "\t"])
def test_the_file_stays_indented_as_it_was(project: Path, indent: str) -> None:
    path = project / ".mcp.json"
    path.write_text(f'{{\n{indent}"other": 1\n}}\n')
    assert install(project, "claude", "--yes").exit_code == 0
    assert path.read_text().startswith(
        f'{{\n{indent}"other": 1,\n{indent}"mcpServers": {{\n{indent * 2}"toolkeep"'
    )


def test_nothing_that_lies_in_the_project_is_imported_by_what_a_client_starts(project: Path) -> None:
    (project / "click.py").write_text("raise SystemExit('imported from the project')")
    install(project, "claude", "--yes")
    server = json.loads((project / ".mcp.json").read_text())["mcpServers"]["toolkeep"]
    done = subprocess.run(
        [server["command"], *server["args"]],
        cwd=project,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_entry_of_another_project_goes_not_unseen(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    warned = "! 'toolkeep' is the entry of another project or server there, which goes; --name keeps both\n"
    assert warned not in install(project, "windsurf", "--yes").stderr
    assert warned not in install(project, "windsurf", "--yes", "--find-tools").stderr
    assert install(other, "windsurf", "--dry-run").stderr == f"{warned}Nothing was written.\n"
    assert warned not in install(other, "windsurf", "--yes", "--name", "other").stderr


def test_a_second_time_changes_nothing(project: Path) -> None:
    install(project, "cursor", "--yes")
    before = (project / ".cursor" / "mcp.json").read_bytes()
    done = install(project, "cursor")
    assert (done.exit_code, "is set up already" in done.stdout) == (0, True)
    assert (project / ".cursor" / "mcp.json").read_bytes() == before


@pytest.mark.parametrize(
    "text",
    [
        "{ // mine\n}",
        "[]",
        '{"servers": []}',
        "[" * 100_000,
        '"x"',
        '{"a": 1, "a": 2}',
        '{"a": NaN}',
    ],
)
def test_a_file_that_is_no_plain_object_is_left_alone(project: Path, text: str) -> None:
    path = project / ".vscode" / "mcp.json"
    path.parent.mkdir()
    path.write_text(text)
    done = install(project, "vscode", "--yes")
    assert (done.exit_code, path.read_text()) == (1, text)
    assert "ACODE-TSR-016" in done.stderr
    assert 'add this to it by hand:\n{\n  "servers": {\n    "toolkeep": {' in done.stderr


def test_an_agent_that_nobody_declared_is_named(project: Path) -> None:
    warned = "! no agent 'stranger' is declared: its calls are refused"
    assert warned in install(project, "claude", "--agent", "stranger").stderr
    assert "!" not in install(project, "claude").stderr


def test_a_link_to_itself_is_no_file(project: Path) -> None:
    (project / ".mcp.json").symlink_to(".mcp.json")
    done = install(project, "claude", "--yes")
    assert (done.exit_code, "Too many levels of symbolic links" in done.stderr) == (1, True)


def test_as_json_the_change_is_shown_as_data(project: Path) -> None:
    done = install(project, "gemini", "--json")
    data = json.loads(done.stdout)
    assert (done.exit_code, data["written"], data["before"]) == (1, False, "")
    assert json.loads(data["after"])["mcpServers"]["toolkeep"] == entry(project)
    assert json.loads(install(project, "gemini", "--json", "--yes").stdout)["written"] is True
    again = install(project, "gemini", "--json", "--yes")
    assert (again.exit_code, json.loads(again.stdout)["written"]) == (0, False)


def test_a_link_stays_a_link(project: Path) -> None:
    real = project / "servers.json"
    real.write_text("{}")
    (project / ".mcp.json").symlink_to(real)
    done = install(project, "claude", "--yes")
    assert (done.exit_code, f"+++ {real} (then)" in done.stdout) == (0, True)
    assert (project / ".mcp.json").is_symlink()
    assert "toolkeep" in real.read_text()


OF_PROJECT = {
    "claude": ".mcp.json",
    "cursor": ".cursor/mcp.json",
    "gemini": ".gemini/settings.json",
    "vscode": ".vscode/mcp.json",
}


def linked(project: Path, client: str, *, is_folder: bool) -> Path:
    """Let the client's file, or its folder, be a link to elsewhere; where it leads."""
    file = project / OF_PROJECT[client]
    elsewhere = project.parent / "elsewhere"
    elsewhere.mkdir()
    link = file.parent if is_folder else file
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere if is_folder else elsewhere / "config.yml")
    return elsewhere / (file.name if is_folder else "config.yml")


LINKS = [(client, False) for client in OF_PROJECT] + [
    (client, True) for client in OF_PROJECT if client != "claude"
]


@pytest.mark.parametrize("words", [["--yes"], ["--json", "--yes"], ["--json"], []], ids="-".join)
@pytest.mark.parametrize(("client", "is_folder"), LINKS)
def test_a_link_out_of_the_project_is_not_followed_unseen(
    project: Path, client: str, is_folder: bool, words: list[str]
) -> None:
    real = linked(project, client, is_folder=is_folder)
    done = install(project, client, *words)
    assert (done.exit_code, real.exists()) == (1, False)
    assert all(said in done.output for said in ("ACODE-TSR-016", "is reached by a link that leads out of"))
    real.write_text("{}")
    for remove in ([], ["--remove"]):
        assert install(project, client, *remove, *words).exit_code == 1
    assert real.read_text() == "{}"


@pytest.mark.parametrize(("keys", "is_written"), [("y\n", True), ("n\n", False)])
@pytest.mark.parametrize(("client", "is_folder"), LINKS)
def test_a_person_who_sees_where_a_link_leads_may_agree(
    project: Path, client: str, is_folder: bool, keys: str, is_written: bool
) -> None:
    real = linked(project, client, is_folder=is_folder)
    with Dialogue(["install", client, "--project", str(project)], cwd=project, columns=400) as person:
        shown = person.until("Write this? [y/N]: ")
        person.enter(keys)
        person.end()
    assert f"a link that leads out of the project, to {real}" in shown
    assert f"++ {real} (then)" in shown  # its first character has a colour
    assert real.exists() is is_written
    assert (project / OF_PROJECT[client]).resolve() == real


def test_a_folder_that_is_replaced_by_a_link_while_the_person_reads_is_not_followed(
    project: Path, tmp_path: Path
) -> None:
    with Dialogue(["install", "cursor", "--project", str(project)], cwd=project) as person:
        person.until("Write this? [y/N]: ")
        (project / ".cursor").symlink_to(tmp_path)
        person.enter("y\n")
        status, shown = person.end()
    assert (status, "ACODE-TSR-016" in shown, (tmp_path / "mcp.json").exists()) == (1, True, False)


@pytest.mark.parametrize("client", sorted(CLIENTS.keys() - OF_PROJECT.keys()))
def test_a_link_in_your_own_home_is_yours(project: Path, tmp_path: Path, client: str) -> None:
    path = CLIENTS[client].path(project)
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "dotfiles.json")
    assert install(project, client, "--yes").exit_code == 0
    assert "toolkeep" in (tmp_path / "dotfiles.json").read_text()


def test_it_says_what_an_agent_with_a_shell_can_do(project: Path) -> None:
    said = "If Claude Code also runs commands as your user, its agent can do what you can"
    assert said in install(project, "claude", "--yes").stderr
    assert said not in install(project, "claude", "--remove", "--yes").stderr
