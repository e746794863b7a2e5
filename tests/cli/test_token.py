"""`toolkeep token`, `toolkeep store` and `toolkeep backup`, from making to the last of them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.storage.keeps import WEATHER
from toolkeep import open_keep
from toolkeep.assembly import open_tokens, project_folder
from toolkeep.cli.main import cli


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*words: str, status: int = 0) -> Result:
    result = CliRunner().invoke(cli, list(words))
    assert result.exit_code == status, result.output
    return result


def data(*words: str) -> Any:
    return json.loads(run(*words, "--json").stdout)


def test_a_token_is_printed_once_alone_on_standard_output() -> None:
    made = run("token", "make", "ci", "-s", "call", "-s", "mcp", "--agent", "writer")
    text = made.stdout.strip()
    assert made.stdout == f"{text}\n"
    assert text not in made.stderr
    token = open_tokens(project_folder()).recognize(text)
    assert token is not None
    assert (token.name, token.agent, [scope.value for scope in token.scopes]) == (
        "ci",
        "writer",
        ["call", "mcp"],
    )
    for shown in (run("token", "list").output, run("token", "list", "--json", "--all").output):
        assert token.id in shown
        assert text[20:] not in shown


def test_tokens_are_rotated_and_revoked_by_the_beginning_of_their_id() -> None:
    first = data("token", "make", "ci", "-s", "call", "--no-end")
    assert first["expires_at"] is None
    second = data("token", "rotate", first["id"][:12])
    assert second["token"] != first["token"]
    assert open_tokens(project_folder()).recognize(first["token"]) is None
    assert data("token", "revoke", second["id"])["revoked_at"]
    assert data("token", "list") == []
    assert len(data("token", "list", "--all")) == 2
    assert run("token", "list").output == "no token counts\n"
    assert run("token", "revoke", second["id"], status=1).stderr.startswith("✗ ACODE-TSR-058")


@pytest.mark.parametrize(
    "words",
    [
        ("make", "ci"),
        ("make", "ci", "-s", "root"),
        ("make", "ci", "-s", "call", "--days", "0"),
        ("make", "ci", "-s", "call", "--days", "3", "--no-end"),
    ],
)
def test_wrong_words_are_wrong_usage(words: tuple[str, ...]) -> None:
    run("token", *words, status=2)
    assert not list(Path.home().rglob("tokens.db"))


def test_the_store_says_what_it_holds_and_moves() -> None:
    assert data("store", "status")["layout"] is None
    with open_keep() as keep:
        keep.create_definition(WEATHER)
        keep.update_definition("weather", {"version": "2.0.0"})
    assert data("store", "status") == {
        **data("store", "status"),
        "layout": "0003",
        "tools": ["weather"],
        "broken": [],
        "versions": 2,
    }
    assert data("store", "migrate", "--to", "0001")["layout"] == "0001"
    assert "this toolkeep uses 0003" in run("store", "status").output
    run("store", "migrate", "--to", "base", status=2)
    run("store", "migrate")
    assert data("store", "status")["versions"] == 2
    run("store", "migrate", "--to", "base", "--yes")
    assert data("store", "status")["layout"] is None


def test_a_stored_tool_is_listed_shown_and_checked() -> None:
    with open_keep() as keep:
        keep.create_definition(WEATHER)
    assert [tool["name"] for tool in data("list") if tool["name"] == "weather"] == ["weather"]
    assert data("validate", "forecast", '{"town": "Ulm"}')["arguments"] == {"town": "Ulm", "days": 3}


def test_checking_a_stored_tool_does_not_load_what_writes() -> None:
    with open_keep() as keep:
        keep.create_definition(WEATHER)
    code = (
        "import sys; from click.testing import CliRunner; from toolkeep.cli.main import cli; "
        "r = CliRunner().invoke(cli, ['validate', 'weather', '{\"town\": \"Ulm\"}']); "
        "assert r.exit_code == 0, r.output; print(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert not {"sqlalchemy", "alembic", "psycopg", "asyncio"} & set(done.stdout.split())


def test_a_state_is_backed_up_checked_and_restored() -> None:
    with open_keep() as keep:
        keep.create_definition(WEATHER)
    made = data("backup", "make", "keep.tar")
    assert data("backup", "check", "keep.tar") == made
    assert run("backup", "restore", "keep.tar", status=1).stderr.startswith("✗ ACODE-TSR-059")
    with open_keep() as keep:
        keep.delete_definition("weather")
    restored = data("backup", "restore", "keep.tar", "--replace")
    assert Path(restored["moved_aside"]).is_dir()
    with open_keep() as keep:
        assert "weather" in keep


@pytest.mark.spec("WEB-2")
def test_a_link_signs_in_once_and_is_alone_on_standard_output() -> None:
    from toolkeep.assembly import open_state
    from toolkeep.storage.sign_in import FileSignInCodes

    state = open_state(project_folder())
    assert state is not None
    made = run("token", "link", "--address", "http://127.0.0.1:9000/")
    page, _, code = made.stdout.strip().partition("#")
    assert page == "http://127.0.0.1:9000/ui/sign-in"
    assert code not in made.stderr
    codes = FileSignInCodes(state.folder)
    assert [codes.use(code), codes.use(code)] == [True, False]
    assert codes.use(data("token", "link")["link"].partition("#")[2])


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.spec("WEB-2")
def test_a_server_shows_a_link_to_a_terminal_and_never_to_a_log(
    is_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolkeep.cli import serve
    from toolkeep.storage.sign_in import MemorySignInCodes

    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    serve._say_how_to_sign_in("http://127.0.0.1:8765", MemorySignInCodes())
    assert ("/ui/sign-in#" in capsys.readouterr().err) == is_terminal
