"""Policies over HTTP: listed, checked and explained; nothing is run."""

from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import noted
from tests.server.talk import Client
from tests.server.test_asgi_app import talk
from toolkeep import Keep, open_keep


def test_the_policies_in_force_are_listed(keep: Keep) -> None:
    keep.use_policies('@id("all") permit (principal, action, resource);')
    listed = talk(keep, lambda client: client.get("/v1/policies")).data
    assert {"all", "toolkeep.permissions"} <= {one["id"] for one in listed}


@pytest.mark.parametrize(
    ("text", "success"),
    [
        ('@id("x") permit (principal, action == Action::"call", resource);', True),
        ("permit (principal, action, resource);", False),
        ('@id("x") permit (principal == Agent::"nobody", action, resource);', False),
        ("not cedar", False),
    ],
)
@pytest.mark.spec("POL-5")
def test_policies_are_checked_without_being_used(keep: Keep, text: str, success: bool) -> None:
    async def act(client: Client) -> Any:
        report = await client.post("/v1/policies:check", {"policies": [{"text": text}]})
        return report, (await client.get("/v1/policies")).data

    report, listed = talk(keep, act)
    assert (report.status, report.data["success"]) == (200, success)
    assert bool(report.data["problems"]) is not success
    assert "x" not in {one["id"] for one in listed}


@pytest.mark.spec("POL-5")
def test_a_call_is_explained_and_not_made(keep: Keep) -> None:
    keep.use_policies(
        '@id("all") permit (principal, action, resource);',
        '@id("no-notes") forbid (principal == Agent::"ada", action == Action::"call", resource == Tool::"send_note");',
    )

    async def act(client: Client) -> Any:
        ada = client.as_agent("ada", "policies:read")
        body = {"tool": "send_note", "arguments": {"text": "hi"}}
        denied = (await ada.post("/v1/policies:explain", body)).data
        allowed = (await client.post("/v1/policies:explain", body)).data
        others = await ada.post("/v1/policies:explain", {**body, "agent": "bob"})
        of_ada = (await client.post("/v1/policies:explain", {**body, "agent": "ada"})).data
        wrong = (await ada.post("/v1/policies:explain", {"tool": "send_note"})).data
        return denied, allowed, others, of_ada, wrong

    denied, allowed, others, of_ada, wrong = talk(keep, act)
    assert (denied["allowed"], denied["decided_by"]) == (False, ["no-notes"])
    assert denied["changes"]
    assert (allowed["allowed"], allowed["asks"]["why"]) == (True, ["its danger is medium"])
    assert (others.status, others.code) == (403, "ACODE-TSR-061")
    assert (of_ada["agent"], of_ada["allowed"]) == ("ada", False)
    assert wrong["refusal"]["code"] == "ACODE-TSR-003"
    assert noted == []


@pytest.mark.spec("POL-1")
def test_an_explanation_tells_an_agent_nothing_of_places_that_it_does_not_hold(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "plans.txt").write_text("x")
    (project / "link").symlink_to(secret / "plans.txt")
    with open_keep(project=project) as keep:
        keep.declare_agent("ada", capabilities=[f"fs.read:{project}"])

        async def act(client: Client) -> Any:
            ada = client.as_agent("ada", "policies:read")
            body = {"tool": "read_file", "arguments": {"path": str(project / "link")}}
            mine = await ada.post("/v1/policies:explain", body)
            whole = await client.post("/v1/policies:explain", {**body, "agent": "ada"})
            return mine, whole

        mine, whole = talk(keep, act)
    assert mine.data["allowed"] is whole.data["allowed"] is False
    assert "plans.txt" in whole.body.decode()
    assert "plans.txt" not in mine.body.decode()
    assert mine.data["refusal"]["code"] == "ACODE-TSR-027"
