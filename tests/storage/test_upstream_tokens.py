"""Tokens of upstream servers: in files of one's own, and in no error."""

import os
import stat
from pathlib import Path

import pytest

from toolkeep.errors import StateUnusable
from toolkeep.storage.upstream_tokens import FileSignIns
from toolkeep.stores.sign_ins import Client, StoredSignIn

KEPT = StoredSignIn(
    url="https://a.example/mcp", issuer="https://b.example", resource="https://a.example/mcp",
    token_endpoint="https://b.example/token", client=Client(id="c", secret="cs-PLANTED"), access_token="at-PLANTED",
)  # fmt: skip


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_tokens_are_kept_replaced_and_forgotten(state: Path) -> None:
    tokens = FileSignIns(state)
    assert tokens.get("up") is None
    assert not tokens.forget("up")
    tokens.put("up", KEPT)
    assert FileSignIns(state).get("up") == KEPT
    assert tokens.get("other") is None
    assert tokens.forget("up")
    assert tokens.get("up") is None


def test_nobody_else_can_read_them(state: Path) -> None:
    before = os.umask(0)
    try:
        FileSignIns(state).put("up", KEPT)
    finally:
        os.umask(before)
    assert stat.S_IMODE((state / "sign-ins" / "up.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((state / "sign-ins").stat().st_mode) == 0o700


@pytest.mark.parametrize("what", ["open file", "open folder", "link", "folder", "broken", "huge"])
def test_what_others_could_have_written_is_not_used(what: str, state: Path) -> None:
    tokens = FileSignIns(state)
    tokens.put("up", KEPT)
    path = state / "sign-ins" / "up.json"
    if what == "open file":
        path.chmod(0o640)
    elif what == "open folder":
        path.parent.chmod(0o755)
    elif what == "broken":
        path.write_text('{"access_token": "at-PLANTED", "url": 7}')
    elif what == "huge":
        path.write_bytes(path.read_bytes() + b" " * 300_000 + b"x")
    else:
        path.rename(state / "elsewhere.json")
        path.mkdir(mode=0o700) if what == "folder" else path.symlink_to(state / "elsewhere.json")
    with pytest.raises(StateUnusable) as refused:
        tokens.get("up")
    assert "PLANTED" not in str(refused.value)
    assert refused.value.__cause__ is None or "PLANTED" not in str(refused.value.__cause__)


@pytest.mark.parametrize("name", ["../up", "", "a/b", "Up", "x" * 65, "a.b"])
def test_a_name_leads_nowhere_else(name: str, state: Path) -> None:
    with pytest.raises(StateUnusable):
        FileSignIns(state).get(name)
    with pytest.raises(StateUnusable):
        FileSignIns(state).put(name, KEPT)
    assert not state.exists()
