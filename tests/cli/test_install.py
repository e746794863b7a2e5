"""`toolkeep install`: shows the change first, keeps everything else, and writes only what was agreed to."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.dialogue import Dialogue
from toolkeep.cli.main import cli
from toolkeep.mcp_server.client_entries import CLIENTS


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # As pipx does: the command is found without an activated environment.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "toolkeep").symlink_to(Path(sys.executable).parent / "toolkeep")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def install(project: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["install", *words, "--project", str(project)])


def entry(folder: object, *more: str) -> dict[str, Any]:
    """An entry of a file of the project, which names the project by `folder`."""
    arguments = ["mcp", "--project", str(folder), "--agent", "mcp-local", *more]
    return {"command": "toolkeep", "args": arguments}


CLAUDE = "${CLAUDE_PROJECT_DIR:-.}"


OWN = {
    "command": sys.executable,
    "args": ["-P", "-m", "toolkeep", "mcp", "--project", "PROJECT", "--agent", "mcp-local"],
}
CODEX = {"required": True, "default_tools_approval_mode": "approve"}
WORKSPACE = entry("${workspaceFolder}")
ENTRIES = {
    "claude": {"mcpServers": {"toolkeep": {"type": "stdio", **entry(CLAUDE)}}},
    "claude-desktop": {"mcpServers": {"toolkeep": OWN}},
    "codex": {"mcp_servers": {"toolkeep": {**entry("."), **CODEX}}},
    "cursor": {"mcpServers": {"toolkeep": WORKSPACE}},
    "gemini": {"mcpServers": {"toolkeep": entry(".")}},
    "opencode": {
        "mcp": {
            "toolkeep": {"type": "local", "command": ["toolkeep", *entry(".")["args"]], "enabled": True},
        },
    },
    "vscode": {"servers": {"toolkeep": {"type": "stdio", **WORKSPACE}}},
    "windsurf": {"mcpServers": {"toolkeep": OWN}},
}


@pytest.mark.spec("MCP-3")
@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_every_client_gets_an_entry_where_it_looks_for_it(project: Path, client: str) -> None:
    done = install(project, client, "--yes")
    assert (done.exit_code, done.stderr.count("!")) == (0, 0)
    text = CLIENTS[client].path(project).read_text()
    data = tomllib.loads(text) if CLIENTS[client].is_toml else json.loads(text)
    wanted = json.dumps(ENTRIES[client]).replace('"PROJECT"', json.dumps(str(project)))
    assert data == json.loads(wanted)


def test_a_file_of_the_project_names_its_own_environment_by_a_path_in_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(project / ".venv" / "bin" / "python"))
    install(project, "claude", "--yes")
    written = json.loads((project / ".mcp.json").read_text())["mcpServers"]["toolkeep"]
    assert (written["command"], written["args"][:4]) == (
        f"{CLAUDE}/.venv/bin/python",
        ["-P", "-m", "toolkeep", "mcp"],
    )
    assert str(project) not in (project / ".mcp.json").read_text()


def test_a_path_of_this_machine_is_not_written_into_a_shared_file_unsaid(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert "! the client finds `toolkeep` only if" in install(project, "claude", "--dry-run").stderr
    monkeypatch.setenv("PATH", "/nowhere")
    assert f"! {sys.executable} is a path of this machine" in install(project, "claude", "--dry-run").stderr
    assert "!" not in install(project, "windsurf", "--dry-run").stderr


@pytest.mark.parametrize("client", ["claude", "codex", "opencode"])
def test_the_state_folder_is_carried_over(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "state"))
    install(project, client, "--yes")
    text = CLIENTS[client].path(project).read_text()
    data = tomllib.loads(text) if CLIENTS[client].is_toml else json.loads(text)
    written = data[CLIENTS[client].key]["toolkeep"]
    assert written.get("env", written.get("environment")) == {"TOOLKEEP_HOME": str(tmp_path / "state")}


MINE = """\
# mine
model = "x" # of mine

[mcp_servers.other]
args = [
  "a",
]

# about the profiles
[profiles.fast]
model = "y"
"""


def test_the_rest_of_a_toml_file_stays_to_the_letter(project: Path) -> None:
    path = project / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text(MINE)
    install(project, "codex", "--yes")
    assert path.read_text().startswith(f"{MINE}\n[mcp_servers.toolkeep]\ncommand = ")
    install(project, "codex", "--yes", "--find-tools")
    assert tomllib.loads(path.read_text())["mcp_servers"]["toolkeep"] == {
        **entry(".", "--find-tools"),
        **CODEX,
    }
    install(project, "codex", "--yes", "--remove")
    assert path.read_text().rstrip() == MINE.rstrip()


@pytest.mark.parametrize(
    "text", ["mcp_servers = {other = {}}\n", "x = [", 'mcp_servers = "x"\n', "a = 1\na = 2\n"]
)
def test_a_toml_file_that_cannot_be_edited_in_place_is_left_alone(project: Path, text: str) -> None:
    path = project / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text(text)
    done = install(project, "codex", "--yes")
    assert (done.exit_code, path.read_text()) == (1, text)
    assert 'add this to it by hand:\n[mcp_servers.toolkeep]\ncommand = "toolkeep"' in done.stderr


def test_a_file_with_comments_is_left_to_a_person(project: Path) -> None:
    (project / "opencode.jsonc").write_text("{} // mine\n")
    done = install(project, "opencode", "--yes")
    assert (done.exit_code, (project / "opencode.json").exists()) == (1, False)
    assert "opencode.jsonc: is not plain JSON; add this to it by hand" in done.stderr


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
        "kept": {"type": "stdio", **entry(CLAUDE, "--find-tools")},
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
    assert f"wrote {path}; restart Claude Code to stop using it" in removed.stdout


def test_what_is_removed_is_shown_and_agreed_to_first(project: Path) -> None:
    install(project, "claude", "--yes")
    path = project / ".mcp.json"
    before = path.read_bytes()
    done = install(project, "claude", "--remove")
    assert (done.exit_code, path.read_bytes()) == (1, before)
    assert '-    "toolkeep": {' in done.stdout
    assert "Nothing was written." in done.stderr


@pytest.mark.parametrize(
    ("client", "name", "kept"),
    [("claude", ".mcp.json", '{"other": 1}'), ("codex", ".codex/config.toml", "# mine\n")],
)
def test_a_file_that_holds_nothing_else_is_deleted(project: Path, client: str, name: str, kept: str) -> None:
    path = project / name
    install(project, client, "--yes")
    removed = install(project, client, "--remove", "--yes")
    assert (removed.exit_code, path.exists()) == (0, False)
    assert f"deleted {path}; restart" in removed.stdout
    path.write_text(kept)
    for words in ((), ("--remove",)):
        install(project, client, "--yes", *words)
    assert path.read_text().startswith(kept.rstrip("}"))
    target = project / "target"
    path.rename(target)
    target.write_text("")
    path.symlink_to(target)
    for words in ((), ("--remove",)):
        install(project, client, "--yes", *words)
    assert path.exists()


@pytest.mark.parametrize("text", ["", "{}", '{"mcpServers": {"mine": {}}}'])
def test_what_is_not_there_need_not_be_removed(project: Path, text: str) -> None:
    path = project / ".mcp.json"
    path.write_text(text)
    done = install(project, "claude", "--remove", "--name", "kept", "--yes")
    assert (done.exit_code, path.read_text()) == (0, text)
    assert done.stdout == f"✓ Claude Code has no entry 'kept': {path}\n"


def test_what_cannot_be_removed_safely_is_left_to_a_person(project: Path) -> None:
    path = project / ".mcp.json"
    path.write_text('{"mcpServers": {"toolkeep": {}} /* mine */}')
    done = install(project, "claude", "--remove", "--yes")
    assert (done.exit_code, path.read_text()) == (1, '{"mcpServers": {"toolkeep": {}} /* mine */}')
    assert "is not plain JSON; remove 'toolkeep' under 'mcpServers' by hand" in done.stderr


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
        assert f"'{option}': must be readable: no control characters, not empty" in done.stderr


def test_a_folder_that_json_cannot_name_is_refused(tmp_path: Path) -> None:
    project = tmp_path / "books\udcff"
    project.mkdir()
    done = install(project, "claude", "--yes")
    assert (done.exit_code, list(project.iterdir())) == (1, [])
    assert done.stderr.endswith("which the file cannot hold; rename the folder\n")


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
        [server["command"], *(word.replace(CLAUDE, ".") for word in server["args"])],
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
    warned = "! the entry 'toolkeep' of another project or server will be replaced; --name NAME keeps both\n"
    assert warned not in install(project, "windsurf", "--yes").stderr
    assert warned not in install(project, "windsurf", "--yes", "--find-tools").stderr
    assert install(other, "windsurf", "--dry-run").stderr == f"{warned}Nothing was written.\n"
    assert warned not in install(other, "windsurf", "--yes", "--name", "other").stderr


def test_a_second_time_changes_nothing(project: Path) -> None:
    install(project, "cursor", "--yes")
    before = (project / ".cursor" / "mcp.json").read_bytes()
    done = install(project, "cursor")
    assert (done.exit_code, "is already configured" in done.stdout) == (0, True)
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
    assert json.loads(data["after"])["mcpServers"]["toolkeep"] == entry(".")
    assert json.loads(install(project, "gemini", "--json", "--yes").stdout)["written"] is True
    again = install(project, "gemini", "--json", "--yes")
    assert (again.exit_code, json.loads(again.stdout)["written"]) == (0, False)


def test_a_link_stays_a_link(project: Path) -> None:
    real = project / "servers.json"
    real.write_text("{}")
    (project / ".mcp.json").symlink_to(real)
    done = install(project, "claude", "--yes")
    assert (done.exit_code, f"+++ {real} (after)" in done.stdout) == (0, True)
    assert (project / ".mcp.json").is_symlink()
    assert "toolkeep" in real.read_text()


OF_PROJECT = {
    "claude": ".mcp.json",
    "codex": ".codex/config.toml",
    "cursor": ".cursor/mcp.json",
    "gemini": ".gemini/settings.json",
    "opencode": "opencode.json",
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
    (client, True) for client in OF_PROJECT if "/" in OF_PROJECT[client]
]


@pytest.mark.parametrize("words", [["--yes"], ["--json", "--yes"], ["--json"], []], ids="-".join)
@pytest.mark.parametrize(("client", "is_folder"), LINKS)
def test_a_link_out_of_the_project_is_not_followed_unseen(
    project: Path, client: str, is_folder: bool, words: list[str]
) -> None:
    real = linked(project, client, is_folder=is_folder)
    done = install(project, client, *words)
    assert (done.exit_code, real.exists()) == (1, False)
    assert all(said in done.output for said in ("ACODE-TSR-016", "is reached through a symlink out of"))
    real.write_text("")
    for remove in ([], ["--remove"]):
        assert install(project, client, *remove, *words).exit_code == 1
    assert real.read_text() == ""


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
    assert f"a symlink out of the project, to {real}" in shown
    assert f"++ {real} (after)" in shown  # its first character has a colour
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


def test_a_file_of_tools_is_named_in_the_project_once_it_is_accepted(project: Path) -> None:
    (project / "tools.py").write_text(
        'from toolkeep import tool\n\n@tool\ndef f() -> int:\n    "F."\n    return 1\n\n'
        '@tool(side_effects=["FsWrite"], capabilities=["fs.write"], danger="low")\n'
        'def g() -> int:\n    "G."\n    return 1\n'
    )
    named = str(project / "tools.py")
    refused = install(project, "claude", named, "--yes")
    assert (refused.exit_code, "ACODE-TSR-024" in refused.stderr, list(project.iterdir())) == (
        1,
        True,
        [project / "tools.py"],
    )
    assert install(project, "claude", named, "--remove").exit_code == 2
    assert install(project, "claude", named, "--dry-run").exit_code == 0
    with Dialogue(["install", "claude", named, "--project", str(project)], cwd=project) as person:
        person.until("Accept this? [y/N]: ")
        person.enter("y\n")
        person.until("Write this? [y/N]: ")
        person.enter("y\n")
        assert person.end()[0] == 0
    written = json.loads((project / ".mcp.json").read_text())["mcpServers"]["toolkeep"]
    assert written["args"][:4] == ["mcp", f"{CLAUDE}/tools.py", "--project", CLAUDE]
    again = install(project, "windsurf", named, "--yes")
    assert (again.exit_code, named in CLIENTS["windsurf"].path(project).read_text()) == (0, True)
    line = 'agents: {"mcp-local": {inherit: defaults, capabilities: ["fs.write:."]}}'
    assert "! not listed to mcp-local, which lacks a grant: g\n" in again.stderr
    assert (f"  {line}\n" in again.stderr, "name their file under" in again.stderr) == (True, False)
    (project / ".agent").mkdir()
    (project / ".agent" / "config.yml").write_text(line)
    shown = json.loads(CliRunner().invoke(cli, ["accept", "--json", "--project", str(project)]).stdout)
    CliRunner().invoke(cli, ["accept", "--hash", shown["hash"], "--project", str(project)])
    assert "not listed" not in install(project, "gemini", named, "--yes").stderr


def test_codex_which_does_not_show_calls_that_wait_is_said_to(project: Path) -> None:
    words = "Codex does not show calls that wait for approval"
    assert words in install(project, "codex", "--yes").stderr
    assert words not in install(project, "codex", "--name", "b", "--client-answers", "--yes").stderr
    assert words.removeprefix("Codex ") not in install(project, "claude", "--yes").stderr
