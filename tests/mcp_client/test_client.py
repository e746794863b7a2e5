"""What is said to a server that is known to speak the newer era, and to one that never stops asking."""

import asyncio
from typing import Any

import pytest

from tests.mcp_client.speakers import Answering, Log, Told
from toolkeep.mcp_client import client as conversing
from toolkeep.mcp_client.client import McpClient
from toolkeep.mcp_client.elicitation import Answerer, Elicitations
from toolkeep.mcp_client.elicitation_audit import ActiveCall
from toolkeep.mcp_client.transport import UpstreamError, UpstreamFailed

ASKS = {
    "resultType": "input_required",
    "inputRequests": {"a": {"method": "elicitation/create"}},
    "requestState": "s",
}


def refusing(code: int, data: Any = None) -> Answering:
    def refuse(_: dict[str, Any]) -> Any:
        raise UpstreamError(code, "no", data)

    return refuse


def called(told: Told, protocol: str = "2026-07-28", answerer: Answerer | None = None) -> Any:
    async def main() -> Any:
        questions = Elicitations(answerer, "up", "ada", told.events.append, Log())
        client = McpClient(told, protocol, questions)
        await client.begin()
        return await client.call("tools/call", {"name": "echo", "arguments": {"x": 1}}, ActiveCall("call"))

    return asyncio.run(main())


@pytest.mark.spec("POL-4")
def test_a_server_that_never_stops_asking_is_given_up() -> None:
    told = Told(server_discover=lambda _: {}, tools_call=lambda _: ASKS)
    with pytest.raises(UpstreamFailed, match="asked for input 4 times"):
        called(told)
    first, *more = [params for method, params in told.asked if method == "tools/call"]
    assert len(more) == 3
    assert "requestState" not in first
    assert all(params["requestState"] == "s" for params in more)
    assert all(params["inputResponses"] == {"a": {"action": "decline"}} for params in more)


def test_a_server_of_the_older_era_that_asks_so_is_not_answered() -> None:
    begin = {"protocolVersion": "2025-11-25", "capabilities": {}}
    told = Told(initialize=lambda _: begin, tools_call=lambda _: ASKS)
    assert called(told, "") == ASKS
    assert [method for method, _ in told.asked].count("tools/call") == 1


def test_a_version_that_is_known_is_neither_asked_for_nor_given_up() -> None:
    told = Told(server_discover=refusing(-32601))
    with pytest.raises(UpstreamError):
        called(told)
    assert [method for method, _ in told.asked] == ["server/discover"]
    older = Told(initialize=refusing(-32601))
    with pytest.raises(UpstreamError):
        called(older, "2025-06-18")
    assert [(method, params["protocolVersion"]) for method, params in older.asked] == [
        ("initialize", "2025-06-18")
    ]


@pytest.mark.parametrize(("supported", "times"), [(["2026-07-28"], 2), (["2099-01-01"], 1), (7, 1)])
def test_a_server_that_refuses_what_it_speaks_is_asked_once_more(supported: Any, times: int) -> None:
    told = Told(server_discover=refusing(-32022, {"supported": supported}))
    with pytest.raises(UpstreamError):
        called(told)
    assert len(told.asked) == times


WANTED = {"type": "object", "properties": {"hour": {"type": "integer", "default": 9}}}
BEGUN = {"protocolVersion": "2025-11-25", "capabilities": {}}


def test_a_server_is_told_that_somebody_fills_in_forms_only_where_somebody_does() -> None:
    told = Told(initialize=lambda _: BEGUN, tools_call=lambda _: {})
    called(told, "")
    called(told, "", lambda _: None)
    begun = [params["capabilities"] for method, params in told.asked if method == "initialize"]
    assert begun == [{}, {"elicitation": {}}]


def test_input_that_a_server_of_the_newer_era_wants_is_given_by_whoever_answers() -> None:
    wish = {"method": "elicitation/create", "params": {"message": "When?", "requestedSchema": WANTED}}
    bad = {"method": "elicitation/create", "params": "x"}
    wishes = {"a": wish, "b": {"method": "roots/list"}, "c": bad}
    asks = {"resultType": "input_required", "inputRequests": wishes}
    told = Told(
        server_discover=lambda _: {},
        tools_call=lambda params: {"content": []} if "inputResponses" in params else asks,
    )
    assert called(told, answerer=lambda _: {}) == {"content": []}
    _, params = told.asked[-1]
    assert params["inputResponses"] == {
        "a": {"action": "accept", "content": {"hour": 9}},
        "b": {"roots": []},
        "c": {"action": "decline"},
    }
    assert params["_meta"]["io.modelcontextprotocol/clientCapabilities"] == {"elicitation": {}}


def test_nobody_is_asked_where_a_server_also_wants_what_is_never_given() -> None:
    heard: list[Any] = []
    wish = {"method": "elicitation/create", "params": {"message": "When?", "requestedSchema": WANTED}}
    wishes = {"a": wish, "b": {"method": "sampling/createMessage"}}
    asks = {"resultType": "input_required", "inputRequests": wishes}
    told = Told(server_discover=lambda _: {}, tools_call=lambda _: asks)
    with pytest.raises(UpstreamFailed):
        called(told, answerer=heard.append)
    assert heard == []
    assert [event.method for event in told.events] == ["sampling/createMessage"]


def test_a_list_of_a_few_giant_pages_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversing, "LIST_BYTES", 10_000)
    pages = iter(range(100))
    tool = {"name": "echo", "description": "x" * 4_000}

    def list_page(_: dict[str, Any]) -> dict[str, Any]:
        return {"tools": [tool], "nextCursor": str(next(pages))}

    with pytest.raises(UpstreamFailed, match="its list of tools has more than 10000 bytes"):
        asyncio.run(McpClient(Told(tools_list=list_page)).list_entries("tools"))
    assert next(pages) == 3


@pytest.mark.spec("MCP-4")
def test_updates_are_reported_at_most_twice_a_second_and_a_silent_server_is_pinged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversing, "PING_SECONDS", 0.0)
    told = Told(resources_subscribe=lambda _: {}, resources_unsubscribe=lambda _: {}, ping=refusing(-32603))
    reported: list[float] = []

    async def main() -> None:
        watch = McpClient(told).watch("x:y", ActiveCall("call"), lambda count, *_: reported.append(count))
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch)
            for _ in range(20):
                await asyncio.sleep(0)
                for heard in told.watched.get("x:y", ()):
                    heard()
            assert reported == [0]
            await asyncio.wait({watching})

    with pytest.raises(ExceptionGroup) as failed:
        asyncio.run(main())
    assert isinstance(failed.value.exceptions[0], UpstreamError)
    assert reported == [0, 1]
    assert [method for method, _ in told.asked] == ["resources/subscribe", "ping", "resources/unsubscribe"]
