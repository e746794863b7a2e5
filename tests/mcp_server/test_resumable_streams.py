"""Streams that broke: taken up again where they were, by whoever they belong to, within bounds."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.mcp_server.talk import HANDSHAKE, Exchange, Http, until
from toolkeep import Keep, ToolContext, tool
from toolkeep.errors import StoreUnavailable
from toolkeep.limits import MCP_KEPT_BYTES, MCP_KEPT_EVENTS
from toolkeep.mcp_protocol.jsonrpc import INVALID_REQUEST
from toolkeep.mcp_server import resumable_streams
from toolkeep.mcp_server.dispatch import McpServer
from toolkeep.mcp_server.http_app import McpApp
from toolkeep.mcp_server.http_response import Reply
from toolkeep.mcp_server.http_sessions import MemorySessions
from toolkeep.mcp_server.resumable_streams import ReplayBuffer, Stream, Streams

Act = Callable[[Http], Coroutine[Any, Any, Any]]
STEPS = {"name": "steps", "arguments": {}, "_meta": {"progressToken": "p"}}


class Gate:
    """Lets the tool `steps` go on, a step at a time."""

    def __init__(self) -> None:
        self.steps: asyncio.Queue[str] = asyncio.Queue()
        self.ended: list[str] = []


@pytest.fixture
def gate(keep: Keep) -> Gate:
    gate = Gate()

    @tool(side_effects=[])
    async def steps(context: ToolContext) -> str:
        """Tell each step."""
        done = 0.0
        try:
            while (step := await gate.steps.get()) != "end":
                done += 1
                context.progress(done, None, step)
        finally:
            gate.ended.append("steps")
        return "done"

    keep.register(steps)
    return gate


def talk(server: McpServer, act: Act, version: str = HANDSHAKE) -> Any:
    async def run() -> Any:
        return await act(await shaken(McpApp(server, path="/mcp"), version))

    return asyncio.run(run())


async def shaken(app: McpApp, version: str = HANDSHAKE) -> Http:
    client = Http(app)
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "tests"}}
    response = await client.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    client.session = response.headers["mcp-session-id"]
    return client


def kept(client: Http) -> int:
    """Bytes that all sessions keep."""
    sessions = client._app._sessions
    assert isinstance(sessions, MemorySessions)
    return sessions._replay_buffer.bytes


def start(client: Http, number: int = 5) -> Exchange:
    return client.begin({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": STEPS})


def come_back(client: Http, name: str) -> Exchange:
    return client.begin(b"", {"last-event-id": name}, method="GET")


async def broken_after_one(client: Http, gate: Gate) -> tuple[Exchange, str]:
    """A call whose stream broke after its first step, and the name of that event."""
    running = start(client)
    gate.steps.put_nowait("one")
    await running.until(1)
    running.close()
    await until(lambda: client_left(running))
    return running, running.response.names[-1]


def client_left(exchange: Exchange) -> bool:
    return exchange._events.empty()


def words(messages: list[dict[str, Any]]) -> list[str]:
    return [
        one["params"]["message"] if "params" in one else one["result"]["content"][0]["text"]
        for one in messages
    ]


# --- the owner comes back ------------------------------------------------------------------------


@pytest.mark.spec("MCP-1")
def test_a_client_gets_what_it_missed_once_and_then_the_rest(server: McpServer, gate: Gate) -> None:
    async def act(client: Http) -> Any:
        running, name = await broken_after_one(client, gate)
        gate.steps.put_nowait("two")
        await until(gate.steps.empty)
        again = come_back(client, name)
        await again.until(1)
        for step in ("three", "end"):
            gate.steps.put_nowait(step)
        await asyncio.wait_for(again.task, 20)
        await asyncio.wait_for(running.task, 20)
        return words(running.response.messages), words(again.response.messages), again.response.is_over

    assert talk(server, act) == (["one"], ["two", "three", "done"], True)


def test_an_answer_that_nobody_heard_is_there_when_the_client_comes_back(
    server: McpServer, gate: Gate
) -> None:
    async def act(client: Http) -> Any:
        running, name = await broken_after_one(client, gate)
        gate.steps.put_nowait("end")
        await asyncio.wait_for(running.task, 20)
        first = come_back(client, name)
        await asyncio.wait_for(first.task, 20)
        last = come_back(client, first.response.names[-1])
        await asyncio.wait_for(last.task, 20)
        return words(first.response.messages), last.response.messages

    assert talk(server, act) == (["done"], [])


def test_only_the_stream_of_the_event_is_taken_up(server: McpServer, gate: Gate) -> None:
    async def act(client: Http) -> Any:
        running, name = await broken_after_one(client, gate)
        other = start(client, 6)
        gate.steps.put_nowait("either")
        gate.steps.put_nowait("or")
        gate.steps.put_nowait("end")
        gate.steps.put_nowait("end")
        await asyncio.wait({running.task, other.task}, timeout=20)
        again = come_back(client, name)
        await asyncio.wait_for(again.task, 20)
        (answer,) = [one for one in again.response.messages if "result" in one]
        return answer["id"], other.response.message["id"]

    assert talk(server, act) == (5, 6)


@pytest.mark.parametrize(("version", "first"), [(HANDSHAKE, 2), ("2025-06-18", 1), ("2025-03-26", 1)])
def test_only_clients_that_know_it_are_given_a_name_before_the_first_message(
    server: McpServer, gate: Gate, version: str, first: int
) -> None:
    async def act(client: Http) -> Any:
        running = start(client)
        gate.steps.put_nowait("one")
        await running.until(1)
        names = len(running.response.names)
        gate.steps.put_nowait("end")
        await asyncio.wait_for(running.task, 20)
        return names, len(running.response.messages)

    assert talk(server, act, version) == (first, 2)


def test_changes_while_nobody_listened_are_told_to_who_comes_back(keep: Keep, server: McpServer) -> None:
    async def act(client: Http) -> Any:
        stream = client.begin(b"", method="GET")
        await until(lambda: stream.response.names)
        stream.close()
        await asyncio.wait_for(stream.task, 20)
        keep.disable("echo")
        await asyncio.sleep(0)
        again = come_back(client, stream.response.names[-1])
        (told,) = await again.until(1)
        again.close()
        await asyncio.wait_for(again.task, 20)
        return told["method"]

    assert talk(server, act) == "notifications/tools/list_changed"


def test_the_newest_who_takes_a_stream_up_has_it(server: McpServer, gate: Gate) -> None:
    async def act(client: Http) -> Any:
        running, name = await broken_after_one(client, gate)
        first, second = come_back(client, name), come_back(client, name)
        await asyncio.wait_for(first.task, 20)
        gate.steps.put_nowait("end")
        await asyncio.wait_for(second.task, 20)
        await asyncio.wait_for(running.task, 20)
        return first.response.messages, words(second.response.messages)

    assert talk(server, act) == ([], ["done"])


def test_a_call_can_be_cancelled_while_its_client_is_away(server: McpServer, gate: Gate) -> None:
    async def act(client: Http) -> Any:
        running, name = await broken_after_one(client, gate)
        params = {"requestId": 5}
        await client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        await asyncio.wait_for(running.task, 20)
        again = come_back(client, name)
        await asyncio.wait_for(again.task, 20)
        return again.response.message["error"]["message"], gate.ended

    assert talk(server, act) == ("The request was cancelled", ["steps"])


# --- nobody comes back ---------------------------------------------------------------------------


def test_a_call_ends_when_its_client_does_not_come_back(
    server: McpServer, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resumable_streams, "MCP_RESUME_SECONDS", 0)

    async def act(client: Http) -> Any:
        running, _ = await broken_after_one(client, gate)
        done, _ = await asyncio.wait({running.task}, timeout=60)  # `wait_for` would cancel it
        return len(done), list(gate.ended)

    assert talk(server, act) == (1, ["steps"])


def test_a_session_that_ends_ends_its_streams_and_keeps_nothing(server: McpServer, gate: Gate) -> None:
    async def act(client: Http) -> Any:
        running, name = await broken_after_one(client, gate)
        ended = await client.post(b"", method="DELETE")
        await asyncio.wait_for(running.task, 20)
        again = await client.post(b"", {"last-event-id": name}, method="GET")
        return ended.status, again.status, gate.ended, kept(client)

    assert talk(server, act) == (204, 404, ["steps"], 0)


# --- hostile -------------------------------------------------------------------------------------


def test_the_stream_of_another_session_is_not_there(server: McpServer, gate: Gate) -> None:
    async def run() -> Any:
        app = McpApp(server, path="/mcp")
        mine, thief = await shaken(app), await shaken(app)
        running, name = await broken_after_one(mine, gate)
        gate.steps.put_nowait("secret")
        own = start(thief, 5)
        await until(gate.steps.empty)
        stolen = await thief.post(b"", {"last-event-id": name}, method="GET")
        gate.steps.put_nowait("end")
        gate.steps.put_nowait("end")
        await asyncio.wait({running.task, own.task}, timeout=20)
        return stolen.status, stolen.message["error"]["code"], b"secret" in stolen.body

    assert asyncio.run(run()) == (400, INVALID_REQUEST, False)


def test_the_session_of_another_agent_cannot_be_taken_up(server: McpServer, gate: Gate) -> None:
    async def run() -> Any:
        app = McpApp(
            server, identify=lambda scope: dict(scope["headers"]).get(b"x-agent", b"mcp-local").decode()
        )
        client = await shaken(app)
        running, name = await broken_after_one(client, gate)
        stolen = await client.post(b"", {"last-event-id": name, "x-agent": "local"}, method="GET")
        gate.steps.put_nowait("end")
        await asyncio.wait_for(running.task, 20)
        return stolen.status, stolen.body

    assert asyncio.run(run()) == (404, b"")


@pytest.mark.parametrize(
    "change",
    [
        lambda name: "x",
        lambda name: name + "0",
        lambda name: name.replace("-1-", "-2-"),
        lambda name: name.rpartition("-")[0] + "-99",
        lambda name: name.rpartition("-")[0] + "--1",
        lambda name: "0" * 16 + name[16:],
        lambda name: "-".join(("9" * 5000, name)),
    ],
)
def test_an_event_that_was_never_sent_takes_nothing_up(
    server: McpServer, gate: Gate, change: Callable[[str], str]
) -> None:
    async def act(client: Http) -> Any:
        running, name = await broken_after_one(client, gate)
        again = await client.post(b"", {"last-event-id": change(name)}, method="GET")
        gate.steps.put_nowait("end")
        await asyncio.wait_for(running.task, 20)
        return again.status

    assert talk(server, act) == 400


def names(streams: Streams, stream: Any) -> Callable[[int], str]:
    return lambda number: f"{streams.mark.decode()}-{stream.number}-{number}"


def test_so_many_events_of_a_session_are_kept_and_no_more() -> None:
    replay_buffer = ReplayBuffer()
    streams = Streams(replay_buffer)
    first, second = streams.begin(lambda: None), streams.begin(lambda: None)
    first.emit(b"x")
    for _ in range(MCP_KEPT_EVENTS):
        second.emit(b"yy")
    name = names(streams, second)
    assert streams.find(names(streams, first)(0)) is None
    assert streams.find(name(0)) == (second, 0)
    second.emit(b"yy")
    assert streams.find(name(0)) is None
    assert streams.find(name(1)) == (second, 1)
    assert replay_buffer.bytes == 2 * MCP_KEPT_EVENTS


def test_so_many_bytes_of_a_session_are_kept_and_no_more() -> None:
    replay_buffer = ReplayBuffer()
    streams = Streams(replay_buffer)
    stream = streams.begin(lambda: None)
    for _ in range(20):
        stream.emit(b"x" * (MCP_KEPT_BYTES // 4))
    assert replay_buffer.bytes == MCP_KEPT_BYTES
    stream.emit(b"x" * (MCP_KEPT_BYTES + 1))
    assert replay_buffer.bytes == 0
    assert streams.find(names(streams, stream)(20)) is None


def test_all_sessions_together_keep_so_much_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumable_streams, "MCP_REPLAY_BYTES", 10)
    replay_buffer = ReplayBuffer()
    mine, other = Streams(replay_buffer).begin(lambda: None), Streams(replay_buffer).begin(lambda: None)
    mine.emit(b"x" * 8)
    other.emit(b"y" * 8)
    assert (len(mine.kept), len(other.kept), replay_buffer.bytes) == (1, 0, 8)


def test_streams_of_which_nothing_is_left_are_forgotten() -> None:
    streams = Streams(ReplayBuffer())
    for _ in range(2 * MCP_KEPT_EVENTS):
        streams.begin(lambda: None).finish(b"x")
    assert len(streams._streams) == MCP_KEPT_EVENTS
    streams.close()
    assert (streams._streams, len(streams._order)) == ({}, 0)


# --- where servers share a database --------------------------------------------------------------


class Log:
    """Stores events when the test says so."""

    def __init__(self) -> None:
        self.stored: list[asyncio.Future[bool]] = []

    def append(self, stream: Stream, frame: bytes, *, is_last: bool) -> "asyncio.Future[bool]":
        self.stored.append(asyncio.get_running_loop().create_future())
        return self.stored[-1]

    def drop(self, stream: Stream, number: int) -> None:
        """Keep everything."""


@pytest.mark.parametrize(
    ("stored", "sent"),
    [([True, True], 2), ([True, False], 1), ([True, StoreUnavailable("x", "is away", hint="")], 2)],
)
def test_an_event_is_sent_once_it_is_stored_and_never_after_another_server_closed_the_stream(
    stored: list[Any], sent: int
) -> None:
    async def act() -> Any:
        log, body = Log(), bytearray()

        async def send(event: Any) -> None:
            body.extend(event.get("body", b""))

        reply = Reply(send)
        stream = Streams(ReplayBuffer(), log=log).begin(lambda: None)
        stream.attach(reply)
        reply.open()
        found = []
        for number, said in enumerate(stored):
            stream.emit(b"event-%d" % number)
            await asyncio.sleep(0.01)
            found.append(body.count(b"data"))
            if isinstance(said, Exception):
                log.stored[-1].set_exception(said)
            else:
                log.stored[-1].set_result(said)
            await asyncio.sleep(0.01)
        reply.end()
        await reply.until_closed()
        return found, body.count(b"data")

    assert asyncio.run(act()) == ([0, 1], sent)
