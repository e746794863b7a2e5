"""MCP servers by their address, in an internet of our own. Run by `tests/sources/mcp/test_by_http.py`."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from tests.network.world import OTHER_PUBLIC, PRIVATE, PUBLIC, World
from toolkeep.network.hosts import HostScope
from toolkeep.network.reaching import HostReach
from toolkeep.sources.mcp.answers import value_of
from toolkeep.sources.mcp.speaking import UpstreamFailed
from toolkeep.sources.mcp.talk import Talk, start_by_http

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


async def begun(**headers: str) -> Talk:
    hosts = HostReach(writes=(HostScope.read("mcp.example"),))
    return await start_by_http(URL, hosts, lambda: headers)


async def said(talk: Talk, text: str = "hello") -> Any:
    return value_of(await talk.conversation.call("echo", {"text": text}), wants_structure=False)


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
    assert (list(talk.pins), await said(talk)) == (["echo"], "hello")
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
    await serve(world, upstream)
    talk = await begun()
    assert await said(talk) == "hello"
    last = upstream.heads[-1].lower()
    assert b"mcp-protocol-version: 2026-07-28" in last
    assert b"mcp-method: tools/call" in last
    assert b"mcp-name: echo" in last


async def test_hostile_answers_end_the_conversation(world: World) -> None:
    note = {"method": "notifications/message", "params": {}}
    ways: dict[str, tuple[Answering, str]] = {
        "another's": (lambda _: [{"id": 999, "result": {}}], "it answered a request that nobody made"),
        "flood": (lambda _: [note] * 2_500, "it sent more than 2000 messages that nobody asked for"),
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
    assert "it wants credentials, which the operator gives as a secret" in await why_not(begun())


async def test_a_server_inside_is_not_reached(world: World) -> None:
    upstream = Upstream()
    await serve(world, upstream, PRIVATE)
    assert "does not lead to public addresses alone" in await why_not(begun())
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
    assert "redirects to where this call may not go" in await why_not(begun(Authorization="Bearer t0ken"))
    assert thief.heads == []


async def test_a_session_id_that_cannot_be_a_header_is_refused(world: World) -> None:
    upstream = Upstream()
    upstream.session = "x" * 300
    await serve(world, upstream)
    assert "session id that cannot be used" in await why_not(begun())
