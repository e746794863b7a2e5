"""`toolkeep token`, from making to revoking."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.plainly import data, run
from toolkeep.keep.open import open_tokens, project_folder
from toolkeep.stores.api_tokens import Token


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def recognized(text: str) -> Token | None:
    with contextlib.closing(open_tokens(project_folder())) as tokens:
        return tokens.recognize(text)


def test_a_token_is_printed_once_alone_on_standard_output() -> None:
    made = run("token", "make", "ci", "-s", "call", "-s", "mcp", "--agent", "writer")
    text = made.stdout.strip()
    assert made.stdout == f"{text}\n"
    assert text not in made.stderr
    token = recognized(text)
    assert token is not None
    assert (token.name, token.agent, [scope.value for scope in token.scopes]) == (
        "ci",
        "writer",
        ["call", "mcp"],
    )
    for shown in (run("token", "list").output, run("token", "list", "--json", "--all").output):
        assert token.id in shown
        assert text[20:] not in shown


def test_an_agent_that_nobody_declared_is_named_where_it_would_call() -> None:
    warned = "! no agent 'ci' is declared: its calls are refused"
    assert warned in run("token", "make", "ci", "-s", "call").stderr
    assert warned not in run("token", "make", "ci", "-s", "metrics").stderr
    assert warned not in run("token", "make", "ci", "-s", "call", "--agent", "operator").stderr
    user = Path.home() / ".agent" / "config.yml"
    user.parent.mkdir()
    user.write_text("agents: {ci: {}}\n")
    assert warned not in run("token", "make", "ci", "-s", "call").stderr


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_token_that_could_not_be_shown_does_not_count(form: tuple[str, ...]) -> None:
    first = data("token", "make", "ci", "-s", "call")
    for words in (("make", "ci", "-s", "call"), ("rotate", first["id"])):
        with Path("/dev/full").open("w") as full:
            ended = subprocess.run(
                [sys.executable, "-m", "toolkeep", "token", *words, *form],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert ended.returncode == 1
        if not form:
            assert ended.stderr == (
                "✗ ACODE-TSR-058: the token could not be shown and was revoked: No space left on device\n"
                "hint: a new one: toolkeep token make ci, where it can be written\n"
            )
    assert data("token", "list") == []


def test_tokens_are_rotated_and_revoked_by_the_beginning_of_their_id() -> None:
    first = data("token", "make", "ci", "-s", "call", "--no-end")
    assert first["expires_at"] is None
    second = data("token", "rotate", first["id"][:12])
    assert second["token"] != first["token"]
    assert recognized(first["token"]) is None
    assert data("token", "revoke", second["id"])["revoked_at"]
    assert data("token", "list") == []
    assert len(data("token", "list", "--all")) == 2
    assert (
        run("token", "list").output
        == "There are no valid tokens. Make one: toolkeep token make NAME --scope call\n"
    )
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


@pytest.mark.spec("WEB-2")
def test_a_link_signs_in_once_and_is_alone_on_standard_output() -> None:
    from toolkeep.keep.open import open_state
    from toolkeep.storage.sqlite.sign_in_codes import FileSignInCodes

    state = open_state(project_folder())
    assert state is not None
    made = run("token", "link", "--address", "http://127.0.0.1:9000/")
    page, _, code = made.stdout.strip().partition("#")
    assert page == "http://127.0.0.1:9000/ui/sign-in"
    assert code not in made.stderr
    codes = FileSignInCodes(state.folder)
    assert [codes.use(code), codes.use(code)] == [True, False]


@pytest.mark.spec("WEB-2")
def test_without_an_address_a_link_leads_to_the_server_that_runs_for_this_project() -> None:
    from toolkeep.keep.open import open_state
    from toolkeep.storage.running_servers import announced

    state = open_state(project_folder())
    assert state is not None
    with announced(state.folder, "http://127.0.0.1:9123"):
        assert data("token", "link")["link"].startswith("http://127.0.0.1:9123/ui/sign-in#")
    refused = run("token", "link", status=1)
    assert refused.stdout == ""
    assert "no server runs for this project" in refused.stderr


def test_a_link_is_one_of_the_web() -> None:
    refused = run("token", "link", "--address", "javascript:alert(1)//", status=2)
    assert refused.stdout == ""
    assert "http://" in refused.stderr


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.spec("WEB-2")
def test_a_server_shows_a_link_to_a_terminal_and_never_to_a_log(
    is_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolkeep.cli import serve
    from toolkeep.storage.sqlite.sign_in_codes import MemorySignInCodes

    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    serve._say_how_to_sign_in("http://127.0.0.1:8765", MemorySignInCodes())
    assert ("/ui/sign-in#" in capsys.readouterr().err) == is_terminal


def test_a_list_has_its_columns_below_each_other() -> None:
    run("token", "make", "ci", "-s", "call", "--agent", "operator", "--no-end")
    run("token", "make", "the night watch", "-s", "call", "-s", "approve", "--agent", "local")
    heading, short, long = run("token", "list").stdout.splitlines()
    assert heading.split() == ["ID", "STATE", "LAST", "USED", "NAME", "AGENT", "SCOPES"]
    assert short.split()[1:] == ["no", "expiry", "never", "ci", "operator", "call"]
    assert [heading.index(word) for word in ("STATE", "NAME", "AGENT", "SCOPES")] == [
        long.index(word) for word in ("expires ", "the night watch", "local", "call,approve")
    ]


def test_no_link_is_made_in_a_state_folder_that_is_open_to_others(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path_factory.mktemp("elsewhere") / "open"
    state.mkdir(mode=0o755)
    monkeypatch.setenv("TOOLKEEP_HOME", str(state))
    assert "is open to other users" in run("token", "link", status=1).stderr
    assert list(state.iterdir()) == []
