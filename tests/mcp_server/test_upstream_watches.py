"""Completion by upstream servers and subscriptions to their resources: by grant, each a call of its kind."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_client.test_item_import import FORBID, GRANTED, PERMIT, add_library, audit, served
from tests.mcp_server.talk import Lines, lines, until
from toolkeep.errors import Code
from toolkeep.mcp_server import upstream_watches
from toolkeep.mcp_server.dispatch import McpServer

pytestmark = pytest.mark.spec("MCP-4")

ALL = ("--prompts", "*", "--resources", "*", "--completions", "*", "--subscriptions", "docs://[lpg]*")
BOTH = (*GRANTED, "mcp.completions:docs", "mcp.subscriptions:docs")
LOGO, PAGE, README = (
    "toolkeep:docs/docs://logo",
    "toolkeep:docs/docs://pages/a",
    "toolkeep:docs/docs://readme",
)
REVIEW = {"type": "ref/prompt", "name": "review"}
PAGES = {"type": "ref/resource", "uri": "toolkeep:docs/docs://pages/{name}{?lang}"}


NO_LOGO = 'context.arguments has uri && context.arguments.uri like "*logo"'


async def complete(client: Lines, ref: Mapping[str, Any], value: str = "a", **more: Any) -> Any:
    params = {"ref": ref, "argument": {"name": "text", "value": value}, **more}
    answer = await client.ask("completion/complete", params)
    return answer["result"]["completion"] if "result" in answer else answer["error"]["code"]


async def subscribe(client: Lines, *uris: str, on: bool = True) -> list[int]:
    method = f"resources/{'' if on else 'un'}subscribe"
    answers = [await client.ask(method, {"uri": uri}) for uri in uris]
    return [answer.get("error", {}).get("code", 0) for answer in answers]


def updated(client: Lines) -> list[str]:
    return [
        one["params"]["uri"] for one in client.heard if one["method"] == "notifications/resources/updated"
    ]


def test_arguments_are_completed_by_the_upstream_and_each_completion_is_recorded(tmp_path: Path) -> None:
    said = add_library(tmp_path, *ALL, "--danger", "completion:*=safe")
    assert "1 completion, 1 subscription" in said
    assert "mcp.completions:docs and mcp.subscriptions:docs" in said

    async def act(client: Lines) -> None:
        found = {"values": ["review", "text", "a", "tone"], "total": 9, "hasMore": False}
        assert await complete(client, REVIEW, context={"arguments": {"tone": "x"}}) == found
        assert (await complete(client, PAGES))["values"] == ["docs://pages/{name}{?lang}", "text", "a"]
        others = {**REVIEW, "name": "other"}, {**PAGES, "uri": LOGO}, {**PAGES, "uri": "docs://pages/{name}"}
        assert [await complete(client, one) for one in others] == [-32602] * 3
        assert await complete(client, REVIEW, "many") == -32603
        assert await complete(client, REVIEW, "x" * 3_000) == -32602
        own = {"of": "prompt:other", "argument": "text", "value": "a"}
        keep = client.server.keep
        direct = await keep.call("completion:docs", own, agent="mcp-local", kind="completion")
        assert direct.code is Code.CONSTRAINT
        await client.call("change")
        assert await complete(client, REVIEW) == -32602  # the prompt waits for acceptance

    served(tmp_path, act, *BOTH)
    *_, call = audit(tmp_path, "list", "--tool", "completion:docs")
    assert "prompt:review" in str(audit(tmp_path, "show", call["call"]))


def test_nothing_is_completed_or_subscribed_to_without_the_grants_and_policies(tmp_path: Path) -> None:
    add_library(tmp_path, *ALL)

    async def act(client: Lines) -> list[Any]:
        declared = (await client.handshake())["result"]["capabilities"]
        offered = "completions" in declared, declared["resources"].get("subscribe", False)
        used = await complete(client, REVIEW), *await subscribe(client, LOGO)
        return [*offered, *(0 if isinstance(one, dict) else one for one in used)]

    def found(*held: str, **more: Any) -> Any:
        return served(tmp_path, act, *held, shakes=False, **more)

    assert found(*GRANTED) == [False, False, -32601, -32601]
    assert found(*GRANTED, "mcp.completions:docs") == [True, False, 0, -32601]
    assert found(*GRANTED, "mcp.subscriptions:docs") == [False, True, -32601, 0]
    for kind in ("resource", "subscription"):
        forbid = FORBID.format(f'resource.kind == "{kind}" && {NO_LOGO}')
        completed, subscribed = found(*BOTH, policies=[PERMIT, forbid])[2:]
        assert (completed, subscribed) == (0, -32002 if kind == "resource" else -32600)


def test_updates_reach_only_subscribers_that_may_read_and_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_library(tmp_path, *ALL)
    monkeypatch.setattr(upstream_watches, "MCP_UPSTREAM_WATCHED", 2)

    async def act(client: Lines) -> None:
        server = client.server
        server.keep.declare_agent("ada", capabilities=BOTH)
        async with lines(server) as ada:
            ada.speaker.connection.agent = "ada"  # as the HTTP transport sets it
            await ada.handshake()
            dots, more = "toolkeep:docs/docs://pages/..", f"{PAGE}b"
            assert await subscribe(client, dots, LOGO, PAGE, README, more) == [-32602, 0, 0, -32002, -32000]
            assert await subscribe(ada, PAGE) == [0]
            said = await client.call("update")
            assert sorted(said["result"]["content"][0]["text"].split()) == ["docs://logo", "docs://pages/a"]
            await until(lambda: len(updated(client)) >= 2)
            assert await subscribe(client, PAGE, on=False) == [0]
            await until(lambda: len(open_calls(server)) == 2)
            # A hundred updates of each came at once.
            assert (sorted(updated(client)), updated(ada)) == ([LOGO, PAGE], [])
            server.keep.use_policies(PERMIT, FORBID.format(f'resource.kind == "resource" && {NO_LOGO}'))
            await until(lambda: open_calls(server) == [("ada", PAGE)])
            await until(lambda: len(updated(client)) == 3)  # what ended it is told by the next read
            assert sorted(updated(client)) == [LOGO, LOGO, PAGE]
            assert client.speaker.connection.watched == set()
        await until(lambda: not open_calls(server))

    served(tmp_path, act, *BOTH)


def open_calls(server: McpServer) -> list[tuple[str, str]]:
    return sorted(server._watches._open)
