"""The first steps are ticked by what happened, and clients are connected by what is shown."""

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.talk import Client
from tests.server.test_asgi_app import talk
from toolkeep import Answer, Keep, Question, open_keep, tool
from toolkeep.mcp_server.client_entries import CLIENTS


@tool(danger="medium", side_effects=["None"])
def order(copies: int) -> int:
    """Order copies.

    Args:
        copies: How many.
    """
    return copies


async def agree(question: Question) -> Answer:
    return Answer(verdict="approve", approver="ada", way="terminal")


@pytest.fixture
def keep() -> Iterator[Keep]:
    with open_keep(built_in=False, approver=agree) as made:
        yield made


async def ticked(client: Client) -> dict[str, bool]:
    answer = await client.get("/v1/onboarding")
    steps = {one["step"]: one["is_done"] for one in answer.data["steps"]}
    assert answer.data["is_done"] == all(steps.values())
    return steps


@pytest.mark.spec("WEB-2")
def test_each_step_is_ticked_once_it_has_happened(keep: Keep) -> None:
    async def act(client: Client) -> list[dict[str, bool]]:
        found = [await ticked(client)]
        keep.register(order)
        found.append(await ticked(client))
        await client.as_agent("ada", "mcp").get("/v1/token")
        found.append(await ticked(client))
        await keep.call("order", {"copies": 1}, agent="local")
        found.append(await ticked(client))
        return found

    none, with_tool, with_client, last = talk(keep, act)
    assert none == {"tool": False, "client": False, "call": False, "rule": False}
    assert with_tool == {**none, "tool": True}
    assert with_client == {**with_tool, "client": True}
    assert all(last.values())


@pytest.mark.spec("WEB-2")
def test_a_call_of_the_operator_connects_no_client_and_a_policy_is_a_rule(keep: Keep) -> None:
    keep.register(order)
    keep.use_policies('@id("all") permit (principal, action, resource);')
    keep.call_sync("order", {"copies": "one"}, agent="operator")

    async def act(client: Client) -> dict[str, bool]:
        return await ticked(client)

    assert talk(keep, act) == {"tool": True, "client": False, "call": False, "rule": True}


@pytest.mark.spec("WEB-2", "MCP-1")
def test_every_client_gets_the_address_and_the_place_of_a_token(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        refused = await client.as_agent("ada", "call").get("/v1/clients")
        other = await client.as_agent("ada", "tokens").get("/v1/clients?agent=operator")
        return (refused.status, other.status), (await client.get("/v1/clients")).data

    statuses, listed = talk(keep, act)
    assert statuses == (403, 404)
    assert [one["client"] for one in listed] == sorted(CLIENTS)
    for one in listed:
        client = CLIENTS[one["client"]]
        data = tomllib.loads(one["text"]) if client.is_toml else json.loads(one["text"])
        entry = data[client.key]["toolkeep"]
        if one["takes_token"]:
            assert entry[client.address_key].endswith("/mcp")
            assert entry[client.headers_key] == {"Authorization": "Bearer TOKEN"}
        else:
            assert (one["client"], entry["args"][-2:]) == ("claude-desktop", ["--agent", "mcp-local"])
