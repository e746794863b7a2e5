"""The status line: who is signed in, what they may do, and how far the log is verified."""

from pathlib import Path
from typing import Any

import pytest

from tests.config.projects import configure, configure_home
from tests.server.talk import Client
from tests.server.test_asgi_app import talk
from tests.server.web.test_app import Visitor, visit
from toolkeep import Keep, open_keep
from toolkeep.stores.api_tokens import ROLES, Scope, read_scopes, roles_of
from toolkeep.version import __version__


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "state"))
    (tmp_path / "project").mkdir()
    with open_keep(project=tmp_path / "project") as keep:
        yield keep


def test_the_status_tells_the_last_verification_to_those_who_may_read_the_log(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        await keep.call("agent_hello_world", {"name": "Ada"})
        viewer, caller = client.as_agent("ada", "viewer"), client.as_agent("ada", "call")
        before = (await viewer.get("/v1/status")).data
        records = (await client.post("/v1/audit:verify")).data["records"]
        after = (await viewer.get("/v1/status")).data
        return before, records, after, (await caller.get("/v1/status")).data

    before, records, after, stranger = talk(keep, act)
    assert (before["version"], before["agent"], before["roles"]) == (__version__, "ada", ["viewer"])
    assert before["may"] == [
        "see the tools that the token's agent may see",
        "read every record of the log",
        "read, check and explain policies",
    ]
    assert before["verified"] is None
    assert {**after["verified"], "at": ""} == {"at": "", "records": records, "is_intact": True}
    assert (stranger["reads_log"], stranger["verified"], stranger["roles"]) == (False, None, [])


@pytest.mark.parametrize(
    ("scopes", "roles"),
    [
        (["viewer"], ["viewer"]),
        (["approver", "call"], ["approver"]),
        (["approver", "editor"], ["approver", "editor"]),
        (["admin"], ["admin"]),
        (["approve"], []),
    ],
)
def test_a_role_is_a_word_for_scopes(scopes: list[str], roles: list[str]) -> None:
    assert roles_of(read_scopes(scopes)) == roles
    assert set(ROLES["approver"]) - set(ROLES["viewer"]) == {Scope.APPROVE}


@pytest.mark.spec("WEB-2")
def test_the_overview_tells_what_needs_attention_to_those_who_may_read_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "state"))
    broken = "- {name: one, description: One., version: 1.0.0, parameters: {type: strang}}"
    configure_home(f"tools:\n  custom_tools:\n    {broken}\n")
    configure(tmp_path / "project", "agents: {ada: {capabilities: ['fs.write:.']}}\n")

    async def act(client: Client) -> Any:
        return (await client.get("/v1/overview")).data, (
            await client.as_agent("ada", "call").get("/v1/overview")
        )

    async def look(visitor: Visitor) -> str:
        return (await visitor.get("/ui/")).body.decode()

    with open_keep(project=tmp_path / "project") as keep:
        found, refused = talk(keep, act)
        page = visit(keep, look)
        tools = len(keep.tools())
    assert found == {
        "tools": tools,
        "tier": "enterprise",
        "skipped": ["one"],
        "held_back": 1,
        "quarantined": [],
    }
    assert refused.status == 403
    assert "1 tool could not be loaded." in page
    assert '<span class="foreign">one</span>' in page
