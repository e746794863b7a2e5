"""Batches (2025-03-26): answered together, bounded, and a message in them gets no more than one alone."""

import asyncio
import json
from typing import Any

import pytest

from tests.mcp_server.conftest import begun, ended
from tests.mcp_server.talk import HANDSHAKE, Http, Lines, lines, modern_request, until
from toolkeep.limits import MCP_BATCH, MCP_BATCH_COMMAS, McpLimits
from toolkeep.mcp_protocol.batch import BATCH_VERSION, is_batch, read_batch
from toolkeep.mcp_protocol.jsonrpc import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    OVERLOADED,
    PARSE_ERROR,
    Unreadable,
)
from toolkeep.mcp_server.dispatch import McpServer
from toolkeep.mcp_server.http_app import McpApp


def request(number: Any, method: str = "ping", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def notice(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def echo(number: Any, text: str) -> dict[str, Any]:
    return request(number, "tools/call", name="echo", arguments={"text": text})


def over_lines(server: McpServer, batch: Any, version: str = BATCH_VERSION) -> Any:
    """What comes back for one batch over stdio."""

    async def talk() -> Any:
        async with lines(server) as client:
            if version:
                await client.handshake(version=version)
            before = len(client.frames)
            client.send(batch)
            await until(lambda: len(client.frames) > before)
            return json.loads(client.frames[before])

    return asyncio.run(talk())


async def shake(client: Http, version: str) -> None:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "tests"}}
    response = await client.post(request(1, "initialize", **params))
    client.session = response.headers["mcp-session-id"]


def over_http(server: McpServer, batch: Any, version: str = BATCH_VERSION) -> Any:
    """The status and what comes back for one batch over HTTP."""

    async def talk() -> Any:
        client = Http(McpApp(server))
        if version:
            await shake(client, version)
        response = await client.post(batch)
        return response.status, json.loads(response.body) if response.body else None

    return asyncio.run(talk())


def by_id(answers: Any) -> dict[Any, Any]:
    return {one["id"]: one.get("result", one.get("error", {}).get("code")) for one in answers}


# --- what comes back -----------------------------------------------------------------------------

MIXED = [
    echo(1, "one"),
    notice("notifications/initialized"),
    request(2),
    request(3, "no/such/method"),
    [request(4)],
    7,
    {"jsonrpc": "2.0", "id": "later", "result": {}},
]


@pytest.mark.spec("MCP-1")
@pytest.mark.parametrize("way", ["stdio", "HTTP"])
def test_a_batch_is_answered_with_one_array(server: McpServer, way: str) -> None:
    answers = over_lines(server, MIXED) if way == "stdio" else over_http(server, MIXED)[1]
    found = [(one["id"], one.get("error", {}).get("code")) for one in answers]
    assert sorted(found, key=str) == sorted(
        [(1, None), (2, None), (3, METHOD_NOT_FOUND), (None, INVALID_REQUEST), (None, INVALID_REQUEST)],
        key=str,
    )
    assert by_id(answers)[1]["content"] == [{"type": "text", "text": "one"}]


def test_a_batch_without_requests_is_taken_and_not_answered(server: McpServer) -> None:
    batch = [notice("notifications/initialized"), notice("notifications/roots/list_changed")]
    assert over_http(server, batch) == (202, None)


def test_arguments_in_a_batch_stay_the_bytes_that_they_were() -> None:
    raw = b'[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":1,"a":2}}}]'
    (message,) = read_batch(raw)
    assert not isinstance(message, Unreadable)
    assert message.arguments == b'{"a":1,"a":2}'


# --- who may send them ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", HANDSHAKE, ""])
def test_other_versions_refuse_batches(server: McpServer, version: str) -> None:
    batch = [echo(1, "one")]
    assert over_lines(server, batch, version)["error"]["code"] == INVALID_REQUEST
    status, answer = over_http(server, batch, version)
    assert (status, answer["error"]["code"]) == (400, INVALID_REQUEST)


def test_a_batch_of_the_newer_era_is_refused_also_with_a_session_that_may_send_them(
    server: McpServer,
) -> None:
    async def talk() -> Any:
        client = Http(McpApp(server))
        await shake(client, BATCH_VERSION)
        body, headers = modern_request("tools/call", {"name": "echo", "arguments": {"text": "x"}})
        response = await client.post([body], headers)
        return response.status, response.message["error"]["code"]

    assert asyncio.run(talk()) == (400, INVALID_REQUEST)


def test_a_batch_goes_to_no_session_of_another_agent(server: McpServer) -> None:
    async def talk() -> Any:
        app = McpApp(server, identify=lambda scope: dict(scope["headers"])[b"x-agent"].decode())
        client = Http(app)
        params = {"protocolVersion": BATCH_VERSION, "capabilities": {}, "clientInfo": {"name": "tests"}}
        response = await client.post(request(1, "initialize", **params), {"x-agent": "mcp-local"})
        client.session = response.headers["mcp-session-id"]
        mine = await client.post([request(2)], {"x-agent": "mcp-local"})
        other = await client.post([request(2)], {"x-agent": "local"})
        return mine.status, other.status

    assert asyncio.run(talk()) == (200, 400)


# --- hostile -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"[]", INVALID_REQUEST),
        (b" [ ] ", INVALID_REQUEST),
        (json.dumps([request(n) for n in range(MCP_BATCH + 1)]).encode(), INVALID_REQUEST),
        (b"[" + b"0," * (MCP_BATCH_COMMAS + 1) + b"0]", INVALID_REQUEST),
        (b"[" * 5_000 + b"]" * 5_000, PARSE_ERROR),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}', PARSE_ERROR),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}] []', PARSE_ERROR),
    ],
)
def test_what_is_no_batch_that_is_taken_is_refused_whole(server: McpServer, raw: bytes, code: int) -> None:
    for said in (over_lines(server, raw), over_http(server, raw)[1]):
        (refused,) = said if isinstance(said, list) else [said]  # Python 3.14 follows what is deep to its end
        assert refused["error"]["code"] == code


def test_a_batch_is_not_read_when_it_could_hold_too_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    from toolkeep.mcp_protocol import batch

    monkeypatch.setattr(batch, "_items", None)
    with pytest.raises(Unreadable):
        read_batch(b"[" + b"0," * (MCP_BATCH_COMMAS + 1) + b"0]")


@pytest.mark.parametrize("way", ["stdio", "HTTP"])
def test_nested_batches_are_refused_each_and_run_nothing(server: McpServer, way: str) -> None:
    nested: Any = [request(5, "tools/call", name="wait_for_ever")]
    for _ in range(20):
        nested = [nested]
    batch = [*nested, request(1)]
    answers = over_lines(server, batch) if way == "stdio" else over_http(server, batch)[1]
    assert by_id(answers) == {None: INVALID_REQUEST, 1: {}}
    assert begun == []


@pytest.mark.parametrize("way", ["stdio", "HTTP"])
def test_initialize_inside_a_batch_is_refused_and_changes_nothing(server: McpServer, way: str) -> None:
    params = {"protocolVersion": HANDSHAKE, "capabilities": {"elicitation": {}}, "clientInfo": {"name": "x"}}
    batch = [request(8, "initialize", **params), request(9)]
    answers = over_lines(server, batch) if way == "stdio" else over_http(server, batch)[1]
    assert by_id(answers) == {8: INVALID_REQUEST, 9: {}}


def test_a_session_cannot_begin_with_a_batch(server: McpServer) -> None:
    params = {"protocolVersion": BATCH_VERSION, "capabilities": {}, "clientInfo": {"name": "x"}}
    status, answer = over_http(server, [request(1, "initialize", **params)], version="")
    assert (status, answer["error"]["code"]) == (400, INVALID_REQUEST)
    assert over_lines(server, [request(1, "initialize", **params)], "")["error"]["code"] == INVALID_REQUEST


@pytest.mark.parametrize("way", ["stdio", "HTTP"])
def test_one_id_in_a_batch_is_answered_as_one_request_and_refused_as_the_others(
    server: McpServer, way: str
) -> None:
    batch = [echo(1, "first"), echo(1, "second"), echo(1, "third")]
    answers = over_lines(server, batch) if way == "stdio" else over_http(server, batch)[1]
    codes = sorted(one.get("error", {}).get("code", 0) for one in answers)
    assert codes == [INVALID_REQUEST, INVALID_REQUEST, 0]
    assert [one["result"]["content"][0]["text"] for one in answers if "result" in one] == ["first"]


def test_each_request_of_a_batch_counts_as_one_in_flight(server: McpServer) -> None:
    server.limits = McpLimits(in_flight=2)
    _, answers = over_http(server, [echo(number, "x") for number in range(5)])
    codes = [one.get("error", {}).get("code") for one in answers]
    assert (codes.count(None), codes.count(OVERLOADED)) == (2, 3)


def holding(client: Lines) -> set[Any]:
    return set(client.speaker.connection.running)


def test_a_request_that_is_cancelled_in_its_own_batch_leaves_nothing_behind(server: McpServer) -> None:
    async def talk() -> Any:
        async with lines(server) as client:
            await client.handshake(version=BATCH_VERSION)
            before = len(client.frames)
            wait = request(5, "tools/call", name="wait_for_ever")
            client.send([wait, notice("notifications/cancelled", requestId=5), request(6)])
            await until(lambda: len(client.frames) > before and not holding(client))
            client.send([echo(5, "again")])
            await until(lambda: len(client.frames) > before + 1)
            return [by_id(json.loads(frame)) for frame in client.frames[before:]]

    first, second = asyncio.run(talk())
    assert first == {6: {}}
    assert second[5]["content"][0]["text"] == "again"


def test_a_request_and_its_cancellation_in_one_breath_leave_the_id_free(server: McpServer) -> None:
    async def talk() -> Any:
        async with lines(server) as client:
            await client.handshake()
            for _ in range(3):
                client.send(request(5, "tools/call", name="wait_for_ever"))
                client.send(notice("notifications/cancelled", requestId=5))
                await until(lambda: not holding(client))
            return await client.call("echo", {"text": "still here"})

    assert asyncio.run(talk())["result"]["content"][0]["text"] == "still here"


def test_closing_the_response_ends_every_request_of_the_batch(server: McpServer) -> None:
    async def talk() -> Any:
        client = Http(McpApp(server))
        await shake(client, BATCH_VERSION)
        calls = [
            request(number, "tools/call", name="wait_for_ever", arguments={"label": str(number)})
            for number in range(3)
        ]
        running = client.begin(calls)
        await until(lambda: len(begun) == 3)
        running.close()
        await asyncio.wait_for(running.task, 20)
        again = await client.post([request(0), request(1), request(2)])
        return by_id(json.loads(again.body))

    assert asyncio.run(talk()) == {0: {}, 1: {}, 2: {}}
    assert sorted(ended) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("raw", "is_one"), [(b"[1]", True), (b" \t\r\n[", True), (b"{", False), (b"", False)]
)
def test_a_batch_is_told_by_its_beginning(raw: bytes, is_one: bool) -> None:
    assert is_batch(raw) is is_one
