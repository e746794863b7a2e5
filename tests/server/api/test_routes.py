"""Routes of the server itself: health, OAuth metadata, MCP behind the same token check, persistent programs."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.execution.persistent.test_persistent_runner import definition, source
from tests.mcp_server.talk import modern_request
from tests.server.conftest import add
from tests.server.talk import Client
from tests.server.test_asgi_app import talk
from tests.server.web.test_app import Visitor, visit
from toolkeep import Code, Keep, open_keep
from toolkeep.config.identity_settings import ClaimGrant, IdentitySettings, Issuer
from toolkeep.server.api.health import Health, is_writable
from toolkeep.storage.log.file_records import FileRecord


@pytest.mark.spec("WEB-1")
def test_it_is_ready_until_it_is_told_to_end(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        before = await client.get("/readyz", headers={"authorization": ""})
        client.app.service.health.stop()
        after = await client.get("/readyz")
        return before, after, (await client.get("/healthz")).data

    before, after, alive = talk(keep, act)
    assert before.status == 200
    assert before.data == {
        "status": "ready",
        "checks": {"serving": True, "providers": True, "log": True, "store": True},
    }
    assert (after.status, after.data["checks"]["serving"]) == (503, False)
    assert alive == {"status": "alive"}


def test_it_is_not_ready_while_providers_load_or_a_check_fails(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        keep._ready.clear()
        loading = await client.get("/readyz")
        keep._ready.set()
        return loading

    assert talk(keep, act).data["checks"]["providers"] is False

    async def checked() -> Any:
        clock = iter([10.0, 10.0, 10.5, 12.0, 12.0])
        answers: Iterator[bool | OSError] = iter([True, OSError("gone")])

        def check() -> bool:
            said = next(answers)
            if isinstance(said, OSError):
                raise said
            return said

        health = Health(keep, {"store": check}, clock=lambda: next(clock))
        return [(await health.readiness()).is_ready for _ in range(3)]

    assert asyncio.run(checked()) == [True, True, False]


def test_it_is_not_ready_where_the_log_is_broken(tmp_path: Path) -> None:
    with Keep(record=lambda: FileRecord(tmp_path / "state")) as keep:
        keep.register(add)

        async def act(client: Client) -> Any:
            assert (await keep.call("add", {"a": 1})).ok
            (tmp_path / "state" / "audit").rename(tmp_path / "aside")
            async with asyncio.timeout(30):  # it is looked at once a checkpoint
                while (result := await keep.call("add", {"a": 1})).ok:
                    pass
            assert result.code is Code.OUTCOME_NOT_RECORDED
            broken = await client.get("/readyz")
            (tmp_path / "aside").rename(tmp_path / "state" / "audit")
            return broken

        broken = talk(keep, act)
    assert (broken.status, broken.data["checks"]["log"]) == (503, False)


def test_a_folder_that_cannot_be_written_is_not_writable(tmp_path: Path) -> None:
    assert is_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="No such file"):
        is_writable(tmp_path / "missing")
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        with pytest.raises(PermissionError):
            is_writable(tmp_path)


@pytest.mark.parametrize("path", ["", "/mcp"])
def test_mcp_clients_learn_where_they_are_and_what_is_wanted(keep: Keep, path: str) -> None:
    async def act(client: Client) -> Any:
        return await client.get(f"/.well-known/oauth-protected-resource{path}", headers={"authorization": ""})

    grant = ClaimGrant(claims={"sub": "ada"}, agent="ada", scopes=("mcp",))
    issuer = Issuer(
        issuer="https://login.example.org",
        audience="https://keep.example.org/mcp",
        algorithm="RS256",
        grants=(grant,),
    )
    data = talk(keep, act, identity=IdentitySettings(issuers=(issuer,))).data
    assert data["resource"] == "https://keep.example.org/mcp"
    assert data["authorization_servers"] == ["https://login.example.org"]
    assert data["bearer_methods_supported"] == ["header"]
    assert data["scopes_supported"] == ["mcp"]  # a client asks for all that it reads here
    known = talk(keep, act, base="https://keep.example.org").data
    assert known["resource"] == "https://keep.example.org/mcp"
    assert "authorization_servers" not in known


@pytest.mark.spec("POL-8")
def test_over_mcp_the_agent_is_that_of_the_token(keep: Keep) -> None:
    keep.use_policies('@id("bob-only") permit (principal == Agent::"bob", action, resource);')
    body, headers = modern_request("tools/call", {"name": "add", "arguments": {"a": 1}})

    async def act(client: Client) -> Any:
        tried = []
        for agent, scope in (("bob", "mcp"), ("ada", "mcp"), ("bob", "call")):
            bearer = client.as_agent(agent, scope)
            response = await bearer.send("POST", "/mcp", body, headers=headers)
            is_error = response.data["result"].get("isError", False) if response.status == 200 else None
            tried.append((response.status, is_error))
        return tried

    assert talk(keep, act) == [(200, False), (200, True), (403, None)]


@pytest.mark.spec("SBX-2")
def test_programs_are_listed_with_their_grant_and_whether_they_run(tmp_path: Path) -> None:
    async def act(client: Client) -> Any:
        await client.as_agent("ada", "call").post(
            "/v1/tools/talk:call", {"arguments": {"path": str(tmp_path)}}
        )
        refused = await client.as_agent("ada", "call").get("/v1/programs")
        return refused.status, (await client.get("/v1/programs")).data

    with open_keep(project=tmp_path) as keep:
        keep.register(source(between_calls="stopped").tool(definition()))
        keep.declare_agent("ada", capabilities=[f"fs.read:{tmp_path}"])
        status, (program,) = talk(keep, act)
    assert program.pop("since")
    assert (status, program) == (
        403,
        {
            "name": "talk",
            "agent": "ada",
            "isolation": "strict",
            "grant": [f"fs.read:{tmp_path}"],
            "state": "stopped",
            "calls": 0,
        },
    )


@pytest.mark.spec("SBX-2")
def test_the_overview_shows_them(tmp_path: Path) -> None:
    with open_keep(project=tmp_path) as keep:
        keep.register(source().tool(definition()))
        keep.declare_agent("ada", capabilities=[f"fs.read:{tmp_path}"])

        async def act(visitor: Visitor) -> tuple[bool, str]:
            before = (await visitor.get("/ui/")).body.decode()
            await keep.call("talk", {"path": str(tmp_path)}, agent="ada")
            return "Persistent programs" in before, (await visitor.get("/ui/")).body.decode()

        was_shown, shown = visit(keep, act)
    assert not was_shown
    row = shown.partition("Persistent programs</h2>")[2].partition("</table>")[0]
    assert [text in row for text in ("talk", "ada", f"fs.read:{tmp_path}", "running")] == [True] * 4
