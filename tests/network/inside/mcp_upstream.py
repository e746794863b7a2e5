"""MCP servers by their address, in an internet of our own. Run by `tests/mcp_client/test_http_transport.py`."""

import asyncio
import json
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest.mock import patch

from tests.mcp_client.speakers import Log
from tests.network.inside.site import read_request
from tests.network.world import OTHER_PUBLIC, PRIVATE, PUBLIC, World
from toolkeep.mcp_client import http_session
from toolkeep.mcp_client.client import value_of
from toolkeep.mcp_client.elicitation import Answerer, Elicitations
from toolkeep.mcp_client.elicitation_audit import ActiveCall
from toolkeep.mcp_client.session import McpSession, start_http
from toolkeep.mcp_client.transport import UpstreamFailed
from toolkeep.network.allowlist import HostAllowlist
from toolkeep.network.hosts import HostScope

URL = "https://mcp.example/mcp"
ECHO = {"name": "echo", "description": "Gives back.", "inputSchema": {"type": "object"}}
Answering = Callable[[dict[str, Any]], Any]


class Upstream:
    """Answers each request as it is told, one connection each."""

    def __init__(self, **ways: Answering) -> None:
        self.ways = ways
        self.heads: list[bytes] = []
        self.is_stream = False
        self.session = ""
        self.status = b"200 OK"

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        asked = json.loads(await reader.readexactly(length))
        writer.write(self._answer(asked))
        await writer.drain()

    def _answer(self, asked: dict[str, Any]) -> bytes:
        if "id" not in asked:
            return b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
        way = self.ways.get(asked["method"].replace("/", "_"), _USUAL.get(asked["method"]))
        said = way(asked) if way else {"error": {"code": -32601, "message": "Method not found"}}
        messages = said if isinstance(said, list) else [{"id": asked["id"], **said}]
        lines = [json.dumps({"jsonrpc": "2.0", **message}) for message in messages]
        kind = "text/event-stream" if self.is_stream else "application/json"
        body = "".join(f"event: message\ndata: {line}\n\n" for line in lines) if self.is_stream else lines[0]
        session = f"Mcp-Session-Id: {self.session}\r\n" if self.session else ""
        head = f"Content-Type: {kind}\r\n{session}Content-Length: {len(body.encode())}\r\n\r\n"
        return b"HTTP/1.1 " + self.status + b"\r\n" + head.encode() + body.encode()


def _initialized(asked: dict[str, Any]) -> dict[str, Any]:
    version = asked["params"]["protocolVersion"]
    return {"result": {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "up"}}}


def _called(asked: dict[str, Any]) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": asked["params"]["arguments"]["text"]}]}}


_USUAL: dict[str, Answering] = {
    "initialize": _initialized,
    "tools/list": lambda _: {"result": {"tools": [ECHO]}},
    "tools/call": _called,
}


async def serve(world: World, upstream: Upstream, address: str = PUBLIC) -> None:
    world.name("mcp.example", [address])
    await world.serve(upstream, address, 443, names=["mcp.example"])


async def begun(
    questions: Elicitations | None = None, secrets: tuple[str, ...] = (), **headers: str
) -> McpSession:
    hosts = HostAllowlist(writes=(HostScope.read("mcp.example"),))
    return await start_http(URL, hosts, lambda: headers, questions=questions, secrets=secrets)


async def said(talk: McpSession, text: str = "hello") -> Any:
    return value_of(
        await talk.client.call(
            "tools/call", {"name": "echo", "arguments": {"text": text}}, ActiveCall("call")
        ),
        wants_structure=False,
    )


async def why_not(work: Any) -> str:
    try:
        await work
    except UpstreamFailed as failed:
        return failed.reason
    return ""


async def test_a_server_is_asked_with_its_session_version_and_headers(world: World) -> None:
    upstream = Upstream()
    upstream.session = "abc"
    await serve(world, upstream)
    talk = await begun(Authorization="Bearer t0ken")
    assert (list(await talk.pins("tools")), await said(talk)) == (["echo"], "hello")
    last = upstream.heads[-1].lower()
    for line in (b"mcp-session-id: abc", b"mcp-protocol-version: 2025-11-25", b"authorization: bearer t0ken"):
        assert line in last, last
    assert b"mcp-session-id" not in upstream.heads[0].lower()


async def test_a_stream_of_events_holds_the_answer(world: World) -> None:
    note = {"method": "notifications/message", "params": {}}
    upstream = Upstream(tools_call=lambda asked: [note, {"id": asked["id"], **_called(asked)}])
    upstream.is_stream = True
    await serve(world, upstream)
    assert await said(await begun()) == "hello"


async def test_the_newer_era_is_spoken_without_a_handshake(world: World) -> None:
    refused = {"error": {"code": -32601, "message": "Method not found"}}
    upstream = Upstream(
        initialize=lambda _: refused,
        server_discover=lambda _: {"result": {"serverInfo": {"name": "modern"}}},
    )
    upstream.session = "abc"
    await serve(world, upstream)
    talk = await begun()
    assert await said(talk) == "hello"
    last = upstream.heads[-1].lower()
    assert b"mcp-session-id" not in last
    assert b"mcp-protocol-version: 2026-07-28" in last
    assert b"mcp-method: tools/call" in last
    assert b"mcp-name: echo" in last


async def test_hostile_answers_end_the_conversation(world: World) -> None:
    note = {"method": "notifications/message", "params": {}}
    ways: dict[str, tuple[Answering, str]] = {
        "another's": (lambda _: [{"id": 999, "result": {}}], "it answered a request that was not made"),
        "flood": (lambda _: [note] * 2_500, "it sent more than 2000 unsolicited messages"),
        "none": (lambda _: [note], "it gave no answer"),
    }
    upstream = Upstream()
    await serve(world, upstream)
    for way, reason in ways.values():
        upstream.is_stream = False
        talk = await begun()
        upstream.is_stream, upstream.ways = True, {"tools_call": way}
        assert await why_not(said(talk)) == reason
        assert not talk.is_alive


async def test_who_wants_credentials_is_said_to(world: World) -> None:
    upstream = Upstream()
    upstream.status = b"401 Unauthorized"
    await serve(world, upstream)
    assert "it requires credentials: configure a secret for it, or sign in" in await why_not(begun())


async def test_a_server_inside_is_not_reached(world: World) -> None:
    upstream = Upstream()
    await serve(world, upstream, PRIVATE)
    assert "resolves to an address that is not public" in await why_not(begun())
    assert upstream.heads == []


async def test_a_redirect_leads_nowhere_else_and_takes_no_secret_along(world: World) -> None:
    thief = Upstream()
    world.name("thief.example", [OTHER_PUBLIC])
    await world.serve(thief, OTHER_PUBLIC, 443, names=["thief.example"])

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 307 Go\r\nLocation: https://thief.example/\r\nContent-Length: 0\r\n\r\n")

    world.name("mcp.example", [PUBLIC])
    await world.serve(redirect, PUBLIC, 443, names=["mcp.example"])
    assert "redirects to a host that this call may not reach" in await why_not(
        begun(Authorization="Bearer t0ken")
    )
    assert thief.heads == []


async def test_a_session_id_that_cannot_be_a_header_is_refused(world: World) -> None:
    upstream = Upstream()
    upstream.session = "x" * 300
    await serve(world, upstream)
    assert "session id that cannot be used" in await why_not(begun())


class Streaming(Upstream):
    """Answers calls with streams that it writes bit by bit."""

    def __init__(self, *streams: "Streams") -> None:
        super().__init__()
        self.streams = list(streams)
        self.replies: list[dict[str, Any]] = []
        self.arrived = asyncio.Event()
        self.session = "abc"

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await read_request(reader)
        self.heads.append(f"{asked.method} {asked.headers}".encode())
        message = asked.json if asked.body else {}
        if "method" not in message and message:
            self.replies.append(message)
            self.arrived.set()
            writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
        elif message.get("method") == "tools/call" or asked.method == "GET":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            await self.streams.pop(0)(message, writer)
        else:
            writer.write(self._answer(message))
        await writer.drain()


Streams = Callable[[dict[str, Any], asyncio.StreamWriter], Any]


def event(message: dict[str, Any], more: str = "") -> bytes:
    return f"{more}data: {json.dumps({'jsonrpc': '2.0', **message})}\n\n".encode()


def hello(number: int) -> dict[str, Any]:
    return {"id": number, "result": {"content": [{"type": "text", "text": "hello"}]}}


async def test_progress_is_told_while_the_stream_goes_on_and_the_answer_ends_it(world: World) -> None:
    told, gone = asyncio.Event(), asyncio.Event()

    async def slowly(asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        progress = {"progressToken": asked["params"]["_meta"]["progressToken"], "progress": 1}
        told_in_halves = event({"method": "notifications/progress", "params": progress})
        for half in (told_in_halves[:20], told_in_halves[20:]):
            writer.write(half)
            await writer.drain()
        await told.wait()  # comes only if the event was understood before the stream ended
        writer.write(event(hello(asked["id"])))
        await writer.drain()
        with suppress(OSError):
            while not writer.is_closing():  # a stream without end, which nobody waits for
                writer.write(b": still here\n\n")
                await writer.drain()
                await asyncio.sleep(0)
        gone.set()

    await serve(world, Streaming(slowly))
    talk = await begun()
    said = await talk.client.call(
        "tools/call", {"name": "echo", "arguments": {"text": "x"}}, ActiveCall("call"), lambda *_: told.set()
    )
    assert value_of(said, wants_structure=False) == "hello"
    await gone.wait()


async def test_what_a_server_asks_in_a_stream_is_answered_before_it_answers(world: World) -> None:
    upstream = Streaming()
    wishes = ("ping", "elicitation/create", "sampling/createMessage", "roots/list")

    async def asking(asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        for wish in wishes:
            upstream.arrived.clear()
            writer.write(event({"id": wish, "method": wish, "params": {}}))
            await writer.drain()
            await upstream.arrived.wait()
        writer.write(event(hello(asked["id"])))

    upstream.streams.append(asking)
    await serve(world, upstream)
    assert await said(await begun()) == "hello"
    refused = {"code": -32601, "message": "Method not found"}
    assert upstream.replies == [
        {"jsonrpc": "2.0", "id": "ping", "result": {}},
        {"jsonrpc": "2.0", "id": "elicitation/create", "result": {"action": "decline"}},
        {"jsonrpc": "2.0", "id": "sampling/createMessage", "error": refused},
        {"jsonrpc": "2.0", "id": "roots/list", "error": refused},
    ]


async def test_a_server_that_does_not_listen_to_replies_is_not_waited_for(world: World) -> None:
    class Deaf(Streaming):
        async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = await read_request(reader)
            message = asked.json
            if message.get("method") == "tools/call":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                writer.write(event({"id": 1, "method": "ping"}) + event(hello(message["id"])))
            elif "method" in message:
                writer.write(self._answer(message))
            else:
                await reader.read()  # until we go
                self.arrived.set()

    upstream = Deaf()
    await serve(world, upstream)
    with patch.object(http_session, "_REPLY_SECONDS", 0.2):
        assert await said(await begun()) == "hello"
    await upstream.arrived.wait()


async def test_a_stream_that_breaks_off_is_taken_up_again(world: World) -> None:
    number = 0

    async def broken(asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        nonlocal number
        number = asked["id"]
        writer.write(b"id: e1\nretry: 1\ndata:\n\nid: e2\ndata: ")

    async def again(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(b"id: e3\nretry: 1\ndata:\n\n")

    async def whole(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(event(hello(number)))

    upstream = Streaming(broken, again, whole)
    await serve(world, upstream)
    assert await said(await begun()) == "hello"
    first, second = upstream.heads[-2:]
    assert b"'last-event-id': 'e1'" in first
    assert b"'last-event-id': 'e3'" in second
    assert b"'mcp-session-id': 'abc'" in second
    assert second.startswith(b"GET")


async def test_an_event_id_that_no_header_can_hold_is_not_said_back(world: World) -> None:
    async def spaced(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(b"id:  e1 \nretry: 1\ndata:\n\n")

    upstream = Streaming(spaced)
    await serve(world, upstream)
    assert await why_not(said(await begun())) == "it gave no answer"


async def test_secrets_of_headers_are_in_nothing_that_a_server_says(world: World) -> None:
    upstream = Upstream(tools_call=lambda _: {"error": {"code": 1, "message": "who is s3cr3t-key?"}})
    await serve(world, upstream)
    talk = await begun(secrets=("s3cr3t-key",), Authorization="Bearer s3cr3t-key")
    assert await why_not(said(talk)) == "it answered with error 1: who is (hidden)?"
    upstream.ways = {}
    assert await said(talk, "I am s3cr3t-key") == "I am (hidden)"


async def test_a_header_that_cannot_be_sent_is_in_no_error(world: World) -> None:
    upstream = Upstream()
    await serve(world, upstream)
    for secret in ("s3cr3t\r\nX: y", "s3cr3t ", "s3cr3tä"):
        shown = ""
        try:
            await begun(Authorization=f"Bearer {secret}")
        except UpstreamFailed as failed:
            shown = "".join(traceback.format_exception(failed))
        assert "a request to 'mcp.example' has a header that cannot be sent" in shown
        assert "s3cr3t" not in shown
    assert upstream.heads == []


async def test_streams_without_measure_end_the_conversation(world: World) -> None:
    async def asks_on(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(event({"id": n, "method": "ping", "params": {}}) for n in range(200)))

    async def breaks_off(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(b"id: e\nretry: 0\ndata:\n\n")

    async def empty_events(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(b"data:\n\n" * 6_000)

    ways: dict[str, list[Streams]] = {
        "it asked for more than 50 things at once": [asks_on],
        "it gave no answer": [breaks_off] * 30,
        "it sent more than 5000 events": [empty_events],
    }
    upstream = Streaming()
    await serve(world, upstream)
    for reason, streams in ways.items():
        upstream.streams = list(streams)
        talk = await begun()
        assert await why_not(said(talk)) == reason
        assert not talk.is_alive


async def test_a_session_that_was_forgotten_begins_anew(world: World) -> None:
    upstream = Upstream()
    upstream.session = "abc"
    await serve(world, upstream)
    talk = await begun()
    upstream.status = b"404 Not Found"
    assert await why_not(said(talk)) == "its session has expired"
    assert not talk.is_alive


async def test_arguments_that_a_tool_wants_in_headers_are_repeated_there(world: World) -> None:
    properties = {"text": {"type": "string", "x-mcp-header": "Text"}, "other": {"type": "string"}}
    tool = {**ECHO, "inputSchema": {"type": "object", "properties": properties}}
    upstream = Upstream(
        server_discover=lambda _: {"result": {"supportedVersions": ["2026-07-28"]}},
        tools_list=lambda _: {"result": {"tools": [tool]}},
    )
    await serve(world, upstream)
    hosts = HostAllowlist(writes=(HostScope.read("mcp.example"),))
    talk = await start_http(URL, hosts, dict, "2026-07-28")
    assert await said(talk, "grün\r\nX: y") == "grün\r\nX: y"
    last = upstream.heads[-1].lower()
    assert b"mcp-param-text: =?base64?" in last
    assert b"\r\nx: y" not in last
    assert b"mcp-param-other" not in last
    assert b"initialize" not in upstream.heads[0]


QUESTION = {
    "message": "When?",
    "requestedSchema": {"type": "object", "properties": {"hour": {"type": "integer", "default": 9}}},
}
ASKS = {"id": "q", "method": "elicitation/create", "params": QUESTION}
ACCEPTED = {"jsonrpc": "2.0", "id": "q", "result": {"action": "accept", "content": {"hour": 9}}}
DECLINED = {"jsonrpc": "2.0", "id": "q", "result": {"action": "decline"}}


class Listening(Streaming):
    """Says what it says unasked on a stream of its own, for as long as somebody listens there."""

    def __init__(self) -> None:
        super().__init__()
        self.first = b""
        self.asks = True
        self.unasked: asyncio.Queue[bytes] = asyncio.Queue()
        self.ended = asyncio.Event()
        self.held: list[asyncio.StreamWriter] = []
        self.opened = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.streams = [self._stream]
        await super().__call__(reader, writer)

    async def _stream(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if not asked:
            await self._hold(writer)
            return
        if self.asks:  # on the other stream, and it answers once it was told
            self.arrived.clear()
            self.unasked.put_nowait(event(ASKS))
            await self.arrived.wait()
        writer.write(event(hello(asked["id"])))

    async def _hold(self, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self.held.append(writer)
        writer.write(self.first)
        saying = asyncio.ensure_future(self._say(writer))
        with suppress(OSError):
            await writer.wait_closed()  # until the other side goes
        saying.cancel()
        self.ended.set()

    async def _say(self, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(await self.unasked.get())


class AskingForOne(Listening):
    """Has two calls at once and asks for one of them: on the stream of that call, or on its own."""

    def __init__(self, *, on_its_own: bool) -> None:
        super().__init__()
        self._on_its_own = on_its_own
        self._count = 0
        self._has_both = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.streams = [self._stream] * 3  # what comes at once finds one each
        await Streaming.__call__(self, reader, writer)

    async def _stream(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if not asked:
            await self._hold(writer)
            return
        self._count += 1
        if self._count == 2:
            self._has_both.set()
        await self._has_both.wait()
        if asked["params"]["arguments"]["text"] == "asks":
            if self._on_its_own:
                self.unasked.put_nowait(event(ASKS))
            else:
                writer.write(event(ASKS))
                await writer.drain()
        await self.arrived.wait()
        writer.write(event(hello(asked["id"])))


def answering(answerer: Answerer, log: Log | None = None) -> Elicitations:
    return Elicitations(answerer, "up", "ada", lambda _: None, log or Log())


async def recorded_of_two(world: World, *, on_its_own: bool) -> list[tuple[str, str, int]]:
    log = Log()
    await serve(world, AskingForOne(on_its_own=on_its_own))
    talk = await begun(answering(lambda _: {}, log))
    calls = [
        talk.client.call("tools/call", {"name": "echo", "arguments": {"text": name}}, ActiveCall(name))
        for name in ("asks", "waits")
    ]
    await asyncio.gather(*calls)
    await talk.close()
    return sorted(log.lines)


async def test_a_question_on_the_stream_of_a_call_is_recorded_with_that_call(world: World) -> None:
    assert await recorded_of_two(world, on_its_own=False) == [("asks", "accept", 1)]


async def test_a_question_on_a_stream_of_its_own_is_recorded_with_every_call(world: World) -> None:
    assert await recorded_of_two(world, on_its_own=True) == [("asks", "accept", 2), ("waits", "accept", 2)]


async def test_a_question_on_a_stream_of_its_own_is_answered_during_a_call(world: World) -> None:
    upstream = Listening()
    await serve(world, upstream)
    talk = await begun(answering(lambda _: {}))
    assert [await said(talk), await said(talk)] == ["hello", "hello"]
    assert upstream.replies == [ACCEPTED, ACCEPTED]
    assert upstream.opened == 1
    await talk.close()


async def test_a_question_on_the_stream_of_its_call_is_answered(world: World) -> None:
    upstream = Streaming()

    async def asking(asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if not asked:
            return
        writer.write(event(ASKS))
        await writer.drain()
        await upstream.arrived.wait()
        writer.write(event(hello(asked["id"])))

    upstream.streams += [asking] * 12
    await serve(world, upstream)
    talk = await begun(answering(lambda _: {}))
    assert await said(talk) == "hello"
    assert upstream.replies == [ACCEPTED]
    await talk.close()


async def test_a_question_while_no_call_is_under_way_is_put_to_nobody(world: World) -> None:
    heard: list[Any] = []
    upstream = Listening()
    await serve(world, upstream)
    talk = await begun(answering(heard.append))
    await said(talk)
    upstream.arrived.clear()
    upstream.unasked.put_nowait(event(ASKS))
    await upstream.arrived.wait()
    assert upstream.replies == [DECLINED, DECLINED]
    assert len(heard) == 1
    await talk.close()


async def test_no_stream_is_held_where_nobody_answers(world: World) -> None:
    upstream = Streaming()

    async def whole(asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(event(hello(asked["id"])))

    upstream.streams.append(whole)
    await serve(world, upstream)
    assert await said(await begun()) == "hello"
    assert not [head for head in upstream.heads if head.startswith(b"GET")]


async def test_a_server_without_such_a_stream_is_asked_for_it_once(world: World) -> None:
    class Deaf(Upstream):
        async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = await read_request(reader)
            self.heads.append(asked.method.encode())
            no = b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n"
            writer.write(no if asked.method == "GET" else self._answer(asked.json))
            await writer.drain()

    upstream = Deaf()
    await serve(world, upstream)
    talk = await begun(answering(lambda _: {}))
    assert [await said(talk), await said(talk)] == ["hello", "hello"]
    assert upstream.heads.count(b"GET") == 1
    assert talk.is_alive


async def test_the_stream_ends_with_the_conversation(world: World) -> None:
    upstream = Listening()
    await serve(world, upstream)
    talk = await begun(answering(lambda _: {}))
    await said(talk)
    assert not upstream.ended.is_set()
    await talk.close()
    await upstream.ended.wait()


async def test_such_a_stream_that_breaks_off_is_held_again(world: World) -> None:
    upstream = Listening()
    upstream.first = b"retry: 1\ndata:\n\n"
    await serve(world, upstream)
    talk = await begun(answering(lambda _: {}))
    assert await said(talk) == "hello"
    upstream.held[0].close()
    await upstream.ended.wait()
    assert await said(talk) == "hello"
    assert upstream.replies == [ACCEPTED, ACCEPTED]
    assert upstream.opened == 2
    await talk.close()


async def test_hostile_words_on_that_stream_end_the_conversation(world: World) -> None:
    note = {"method": "notifications/message", "params": {}}
    ping = {"id": 1, "method": "ping", "params": {}}
    # Twice what is borne, since the answer of the call begins a new count.
    ways = (event({"id": 2, "result": {}}), b"data: junk\n\n", event(note) * 4_500, event(ping) * 110)
    upstream = Listening()
    upstream.asks = False
    await serve(world, upstream)
    for upstream.first in ways:
        upstream.ended.clear()
        talk = await begun(answering(lambda _: {}))
        assert await said(talk) == "hello"
        await upstream.ended.wait()
        assert not talk.is_alive
        await talk.close()


async def test_no_stream_is_held_in_the_newer_era(world: World) -> None:
    upstream = Streaming()
    upstream.ways = {"server_discover": lambda _: {"result": {"supportedVersions": ["2026-07-28"]}}}

    async def whole(asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(event(hello(asked.get("id", 0))))

    upstream.streams += [whole] * 2
    await serve(world, upstream)
    hosts = HostAllowlist(writes=(HostScope.read("mcp.example"),))
    talk = await start_http(URL, hosts, dict, "2026-07-28", questions=answering(lambda _: {}))
    assert await said(talk) == "hello"
    assert not [head for head in upstream.heads if head.startswith(b"GET")]


class Parting(Upstream):
    """Hears farewells and what is cancelled; never answers calls, and farewells as it is told."""

    def __init__(self, farewell: bytes | None = b"204 No Content") -> None:
        super().__init__(server_discover=lambda _: {"result": {"supportedVersions": ["2026-07-28"]}})
        self.session = "abc"
        self.farewell = farewell
        self.silent_to = "tools/call"
        self.ended: list[str | None] = []
        self.cancelled: list[dict[str, Any]] = []
        self.called = asyncio.Event()
        self.left = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await read_request(reader)
        message = asked.json if asked.body else {}
        if asked.method == "DELETE":
            self.ended.append(asked.headers.get("mcp-session-id"))
            if self.farewell is None:
                await reader.read()  # until we go
            else:
                writer.write(b"HTTP/1.1 " + self.farewell + b"\r\nContent-Length: 0\r\n\r\n")
        elif message["method"] == "notifications/cancelled":
            self.cancelled.append({**message["params"], "session": asked.headers.get("mcp-session-id")})
            writer.write(self._answer(message))
        elif message["method"] == self.silent_to:
            self.number = message["id"]
            self.called.set()
            assert await reader.read() == b""  # until we go
            self.left.set()
        else:
            writer.write(self._answer(message))


async def given_up(talk: McpSession, upstream: Parting) -> None:
    """Give a call up once the server has it."""
    calling = asyncio.ensure_future(said(talk))
    await upstream.called.wait()
    calling.cancel()
    await asyncio.wait({calling})


async def test_a_session_is_ended_with_its_conversation_whatever_the_server_says_to_it(world: World) -> None:
    upstream = Parting()
    await serve(world, upstream)
    for upstream.farewell in (
        b"204 No Content",
        b"405 Method Not Allowed",
        b"404 Not Found",
        b"500 Oh",
        None,
    ):
        talk = await begun(Authorization="Bearer t0ken")
        await talk.close()
    assert upstream.ended == ["abc"] * 5


async def test_no_session_is_ended_that_never_was_or_that_is_forgotten(world: World) -> None:
    upstream = Parting()
    await serve(world, upstream)
    talk = await begun()
    upstream.status = b"404 Not Found"
    await why_not(talk.client.list_entries("tools"))
    await talk.close()
    upstream.status, upstream.session = b"200 OK", ""
    await (await begun()).close()
    assert upstream.ended == []


async def test_a_session_id_counts_only_where_the_handshake_gives_it(world: World) -> None:
    upstream = Parting()
    await serve(world, upstream)
    hosts = HostAllowlist(writes=(HostScope.read("mcp.example"),))
    await (await start_http(URL, hosts, dict, "2026-07-28")).close()
    talk = await begun()
    upstream.session = "another"
    await talk.client.list_entries("tools")
    await talk.close()
    assert upstream.ended == ["abc"]


async def test_a_call_that_is_given_up_is_cancelled_there(world: World) -> None:
    upstream = Parting()
    await serve(world, upstream)
    for upstream.session in ("abc", ""):
        talk = await begun()
        await given_up(talk, upstream)
        await talk.close()
        session = upstream.session or None
        assert upstream.cancelled.pop() == {"requestId": upstream.number, "session": session}
        upstream.called.clear()
    assert upstream.ended == ["abc"]


async def test_in_the_newer_era_a_call_that_is_given_up_is_only_closed(world: World) -> None:
    upstream = Parting()
    await serve(world, upstream)
    hosts = HostAllowlist(writes=(HostScope.read("mcp.example"),))
    talk = await start_http(URL, hosts, dict, "2026-07-28")
    await given_up(talk, upstream)
    await upstream.left.wait()
    await talk.close()
    assert (upstream.cancelled, upstream.ended) == ([], [])


async def test_a_handshake_that_takes_too_long_is_not_cancelled(world: World) -> None:
    upstream = Parting()
    upstream.silent_to = "initialize"
    await serve(world, upstream)
    hosts = HostAllowlist(writes=(HostScope.read("mcp.example"),))
    assert "did not answer initialize in 0.2 s" in await why_not(start_http(URL, hosts, dict, begin_s=0.2))
    await upstream.left.wait()
    assert (upstream.cancelled, upstream.ended) == ([], [])
