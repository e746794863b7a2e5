"""Policies over HTTP: listed, checked and explained; nothing is run."""

from typing import Any

import pytest

from tests.server.conftest import noted
from tests.server.talk import Client
from tests.server.test_app import talk
from toolkeep import Keep


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
