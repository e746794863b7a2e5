"""`toolkeep sign-in`: for upstreams that a person accepted, and for no others."""

from pathlib import Path

import pytest

from tests.cli.upstreams import toolkeep
from tests.config.projects import accept, configure
from toolkeep.keep.open import open_state
from toolkeep.storage.upstream_tokens import FileSignIns
from toolkeep.stores.sign_ins import Client, StoredSignIn

URL = "https://127.0.0.1/mcp"
FILE = f"upstreams:\n  up:\n    mcp: up.mcp.json\n    url: {URL}\n    oauth: {{}}\n  plain:\n    mcp: up.mcp.json\n    url: {URL}\n"
KEPT = StoredSignIn(
    url=URL,
    issuer="https://b.example",
    resource=URL,
    token_endpoint="https://b.example/t",
    client=Client(id="c"),
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    configure(tmp_path, FILE)
    configure(tmp_path, '{"server": {}, "tools": []}', name=".agent/up.mcp.json")
    return tmp_path


def tokens_of(project: Path) -> FileSignIns:
    state = open_state(project)
    assert state is not None
    return FileSignIns(state.folder)


def test_a_file_that_nobody_accepted_sends_nobody_to_sign_in(project: Path) -> None:
    done = toolkeep(project, "sign-in", "up")
    assert done.exit_code == 1
    assert "ACODE-TSR-087: upstream 'up': is not an upstream of the accepted configuration" in done.output


@pytest.mark.parametrize("name", ["plain", "nobody", "../up"])
def test_who_is_not_signed_in_to_is_said(project: Path, name: str) -> None:
    accept(project)
    assert "ACODE-TSR-087" in toolkeep(project, "sign-in", name).output


def test_tokens_are_forgotten(project: Path) -> None:
    accept(project)
    tokens_of(project).put("up", KEPT)
    assert toolkeep(project, "sign-in", "up", "--forget").exit_code == 0
    assert tokens_of(project).get("up") is None
    assert '"forgotten": false' in toolkeep(project, "sign-in", "up", "--forget", "--json").output


def test_a_server_that_cannot_be_reached_is_said_in_plain_words(project: Path) -> None:
    accept(project)
    done = toolkeep(project, "sign-in", "up")
    assert done.exit_code == 1
    assert "ACODE-TSR-087" in done.output
    assert tokens_of(project).get("up") is None


LEAKS = "would be sent to any authorization server that the server names"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("http://127.0.0.1/mcp", "--sign-in"), "needs a server with an https:// address"),
        ((URL, "--client-secret", "KEY", "--client-id", "us"), LEAKS),
        ((URL, "--client-secret", "KEY", "--issuer", "https://b.example"), LEAKS),
    ],
)
def test_a_secret_is_not_taken_where_anybody_could_ask_for_it(
    tmp_path: Path, words: tuple[str, ...], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "cs-PLANTED")
    done = toolkeep(tmp_path, "add", "mcp", "up", *words)
    assert "ACODE-TSR-076" in done.output
    assert reason in done.output
    assert "PLANTED" not in done.output
