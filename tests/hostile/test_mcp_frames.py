"""Hostile frames: whatever a client sends, the server goes on, answers others, and tells nobody of another.

Cut, giant, deep, of wrong types, with ids that are taken, for methods that there are not, and too many at once.
"""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.mcp_server.talk import MODERN, Http, Lines, lines, meta, modern_request
from toolkeep import Keep, open_keep, tool
from toolkeep.mcp_protocol.batch import BATCH_VERSION
from toolkeep.mcp_protocol.jsonrpc import Unreadable, read_message
from toolkeep.mcp_server.dispatch import McpServer
from toolkeep.mcp_server.features import Prompt, Resource
from toolkeep.mcp_server.http_app import McpApp

SECRET = "only for the other client"


@tool(side_effects=[])
async def keep_secret(text: str = "") -> str:
    """Give back a text.

    Args:
        text: What to give back.
    """
    return text or "nothing"


def served(keep: Keep) -> McpServer:
    keep.register(keep_secret)
    server = McpServer(keep, find_tools=True)
    server.add_resource(Resource(uri="a://{b}", name="a", read=lambda b: b))
    server.add_prompt(Prompt(name="p", messages=list))
    server.complete_with(lambda *_: [])
    server.enable_logging()
    return server


METHODS = st.sampled_from(
    [
        "initialize", "ping", "server/discover", "tools/list", "tools/call", "tasks/get", "tasks/update",
        "tasks/cancel", "resources/list", "resources/read", "resources/subscribe", "prompts/list", "prompts/get",
        "completion/complete", "logging/setLevel", "notifications/cancelled", "notifications/initialized", "x",
    ]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["name", "arguments", "_meta", "cursor", "taskId", "uri", "ref", "argument", "level", "requestState",
     "inputResponses", "requestId", "protocolVersion", "capabilities", "clientInfo", "query"]
)  # fmt: skip
PARAMS = st.dictionaries(KEYS, JSON | st.sampled_from(["keep_secret", "find_tools", "call_tool"]), max_size=4)
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0", 2])},
    optional={
        "id": st.integers(0, 5) | st.text(max_size=3) | JSON,
        "method": METHODS | JSON,
        "params": PARAMS | JSON,
        "result": JSON,
        "error": JSON,
    },
)


def frames() -> st.SearchStrategy[bytes]:
    whole = MESSAGES.map(lambda message: json.dumps(message).encode())
    modern = st.builds(
        lambda method, params: json.dumps(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": method,
                "params": {**params, "_meta": {**meta(), "x": params.get("_meta")}},
            }
        ).encode(),
        METHODS,
        PARAMS,
    )
    cut = st.builds(lambda raw, at: raw[: at % (len(raw) + 1)], whole, st.integers(0, 500))
    return whole | modern | cut | st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b""))


SLOW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(st.lists(frames(), max_size=12))
def test_no_lines_stop_the_server_or_break_it(sent: list[bytes]) -> None:
    async def run() -> None:
        with open_keep(built_in=False) as keep:
            server = served(keep)
            async with lines(server) as hostile, lines(server) as other:
                for frame in sent:
                    hostile.send(frame)
                answer = await other.modern(
                    "tools/call", {"name": "keep_secret", "arguments": {"text": SECRET}}
                )
                assert answer["result"]["content"][0]["text"] == SECRET
                await _settled(hostile)
                assert SECRET.encode() not in b"".join(hostile.frames)
                assert b"-32603" not in b"".join(hostile.frames)
                _check_answers(hostile, sent)
            server.close()

    asyncio.run(run())


@SLOW
@given(st.lists(frames(), min_size=1, max_size=6))
def test_no_batch_stops_the_server_or_breaks_it(sent: list[bytes]) -> None:
    batch = b"[" + b",".join(sent) + b"]"

    async def run() -> None:
        with open_keep(built_in=False) as keep:
            server = served(keep)
            async with lines(server) as hostile, lines(server) as other:
                await hostile.handshake(version=BATCH_VERSION)
                hostile.send(batch)
                answer = await other.modern(
                    "tools/call", {"name": "keep_secret", "arguments": {"text": SECRET}}
                )
                assert answer["result"]["content"][0]["text"] == SECRET
                await _settled(hostile)
                said = [*hostile.frames, await _posted(server, batch)]
                assert SECRET.encode() not in b"".join(said)
                assert b"-32603" not in b"".join(said)
            server.close()

    asyncio.run(run())


async def _posted(server: McpServer, batch: bytes) -> bytes:
    client = Http(McpApp(server))
    params = {"protocolVersion": BATCH_VERSION, "capabilities": {}, "clientInfo": {"name": "x"}}
    begun = await client.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    client.session = begun.headers["mcp-session-id"]
    response = await client.post(batch)
    assert response.status in (200, 202, 400)
    return response.body


async def _settled(client: Lines) -> None:
    running = list(client.speaker.connection.running.values())
    if running:
        await asyncio.wait(running, timeout=60)
    assert not client.speaker.connection.running


def _check_answers(client: Lines, sent: list[bytes]) -> None:
    """Every request got one answer, and nobody else did."""
    asked = 0
    for frame in sent:
        try:
            message = read_message(frame)
        except Unreadable:
            asked += bool(frame.strip())
        else:
            asked += bool(message.method) and message.id is not None
    answers = [one for one in map(json.loads, client.frames) if "method" not in one]
    assert len(answers) <= asked


@SLOW
@given(frames(), st.sampled_from(["", MODERN, "2025-11-25", "x"]), METHODS)
def test_no_body_stops_the_http_side_or_breaks_it(frame: bytes, version: str, method: str) -> None:
    async def run() -> None:
        with open_keep(built_in=False) as keep:
            server = served(keep)
            app = McpApp(server)
            client = Http(app)
            headers = {
                "mcp-method": method,
                "mcp-name": "keep_secret",
                **({"mcp-protocol-version": version} if version else {}),
            }
            response = await client.post(frame, headers)
            assert 200 <= response.status < 500
            assert b"-32603" not in response.body
            fine = await Http(app).modern("tools/call", {"name": "keep_secret", "arguments": {"text": "x"}})
            assert fine.status == 200
            server.close()

    asyncio.run(run())


DEEP = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"keep_secret","arguments":%s}}'


@pytest.mark.parametrize(
    "arguments",
    [
        b'{"text":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"text":"' + b"x" * 3_000_000 + b'"}',
        b"[" * 500_000,
        b'{"text":1e999}',
        b'{"text":"\\ud800"}',
        b'{"text":NaN}',
    ],
)
def test_deep_giant_and_impossible_arguments_are_refused_and_nothing_else_happens(arguments: bytes) -> None:
    async def run() -> Any:
        with open_keep(built_in=False) as keep:
            server = served(keep)
            async with lines(server) as client:
                await client.handshake()
                client.send(DEEP % arguments)
                await _settled(client)
                said = json.loads(client.frames[-1])
                assert said.get("error", {}).get("code") in (None, -32700, -32600)
                assert "error" in said or said["result"]["isError"]
                assert len(client.frames[-1]) < 5000
                return await client.ask("ping")

    assert asyncio.run(run())["result"] == {}


def test_a_flood_is_answered_or_refused_and_another_client_is_served() -> None:
    async def run() -> Any:
        with open_keep(built_in=False) as keep:
            server = served(keep)
            async with lines(server) as flooding, lines(server) as other:
                for number in range(5000):
                    flooding.send(
                        {"jsonrpc": "2.0", "id": number, "method": "tools/list", "params": {"_meta": meta()}}
                    )
                await _settled(flooding)
                answers = [json.loads(frame) for frame in flooding.frames]
                assert sorted(one["id"] for one in answers) == list(range(5000))
                return await other.modern("tools/call", {"name": "keep_secret", "arguments": {"text": "x"}})

    assert asyncio.run(run())["result"]["content"][0]["text"] == "x"


def test_a_client_that_goes_away_in_the_midst_leaves_nothing_behind() -> None:
    async def run() -> Any:
        with open_keep(built_in=False) as keep:
            server = served(keep)
            app = McpApp(server)
            gone = [Http(app).begin(*modern_request("subscriptions/listen", {})) for _ in range(50)]
            for one in gone:
                await one.until(1)
            assert len(server.hub.subscriptions) == 50
            for one in gone:
                one.close()
            await asyncio.wait({one.task for one in gone}, timeout=60)
            left = len(server.hub.subscriptions), server._in_flight
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            await asyncio.wait(tasks, timeout=60) if tasks else None
            return left, [task for task in tasks if not task.done()]

    assert asyncio.run(run()) == ((0, 0), [])
