"""Clients for the tests: one that speaks lines, one that speaks HTTP, both in this process."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from toolkeep.mcp_server.dispatch import McpServer
from toolkeep.mcp_server.http_app import McpApp
from toolkeep.mcp_server.stdio_server import StdioServer

HANDSHAKE = "2025-11-25"
MODERN = "2026-07-28"
TASKS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


async def until(happened: Callable[[], object]) -> None:
    """Let the loop turn until something has happened."""
    async with asyncio.timeout(60):
        while not happened():  # noqa: ASYNC110 -- what happens knows nothing of tests
            await asyncio.sleep(0)


def meta(capabilities: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities or {},
        **more,
    }


class Lines:
    """A client that speaks lines; `answers` are given to what the server asks, by method."""

    def __init__(self, server: McpServer, answers: dict[str, Any] | None = None) -> None:
        self._waiting: dict[Any, asyncio.Future[dict[str, Any]]] = {}
        self._answers = answers or {}
        self._ids = itertools.count(1)
        self.heard: list[dict[str, Any]] = []
        """Notifications, and requests of the server."""
        self.frames: list[bytes] = []
        self.server = server
        self.speaker = StdioServer(server, self._hear)

    def _hear(self, frame: bytes) -> None:
        self.frames.append(frame)
        said = json.loads(frame)
        for message in said if isinstance(said, list) else [said]:
            self._hear_message(message)

    def _hear_message(self, message: dict[str, Any]) -> None:
        waiting = self._waiting.pop(message.get("id"), None) if "method" not in message else None
        if waiting is not None:
            waiting.set_result(message)
            return
        self.heard.append(message)
        if "id" in message and message.get("method") in self._answers:
            said = self._answers[message["method"]]
            self.send({"jsonrpc": "2.0", "id": message["id"], "result": said})

    def send(self, message: Any) -> None:
        self.speaker.take(message if isinstance(message, bytes) else json.dumps(message).encode())

    def begin(self, method: str, params: dict[str, Any] | None = None) -> "tuple[int, asyncio.Future[Any]]":
        number = next(self._ids)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}})
        return number, waiting

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The whole response."""
        _, waiting = self.begin(method, params)
        answer: dict[str, Any] = await asyncio.wait_for(waiting, 20)
        return answer

    async def modern(
        self, method: str, params: dict[str, Any] | None = None, capabilities: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        return await self.ask(method, {**(params or {}), "_meta": meta(capabilities)})

    async def handshake(
        self, capabilities: dict[str, Any] | None = None, version: str = HANDSHAKE
    ) -> dict[str, Any]:
        info = {"name": "tests", "version": "1"}
        params = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": info}
        answer = await self.ask("initialize", params)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    async def call(self, name: str, arguments: Any = None, **params: Any) -> dict[str, Any]:
        return await self.ask("tools/call", {"name": name, "arguments": arguments or {}, **params})


@asynccontextmanager
async def lines(server: McpServer, answers: dict[str, Any] | None = None) -> AsyncIterator[Lines]:
    client = Lines(server, answers)
    try:
        yield client
    finally:
        client.speaker.close()


@dataclass
class Response:
    """What came back over HTTP."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_over: bool = False

    @property
    def messages(self) -> list[dict[str, Any]]:
        if self.headers.get("content-type") != "text/event-stream":
            return [json.loads(self.body)] if self.body else []
        events = self.body.decode().split("\r\n\r\n")
        told = [event.partition("data: ")[2] for event in events]
        return [json.loads(one) for one in told if one]

    @property
    def names(self) -> list[str]:
        """The names of the events of a stream."""
        lines = self.body.decode().split("\r\n")
        return [line.removeprefix("id: ") for line in lines if line.startswith("id: ")]

    @property
    def message(self) -> dict[str, Any]:
        return self.messages[-1]


class Exchange:
    """One HTTP request under way."""

    def __init__(self, app: McpApp, method: str, headers: dict[str, str], body: bytes, path: str) -> None:
        self.response = Response()
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._events.put_nowait({"type": "http.request", "body": body, "more_body": False})
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": method, "path": path, "headers": raw}
        self.changed = asyncio.Event()
        self.task = asyncio.ensure_future(app(scope, self._events.get, self._send))

    async def _send(self, event: Any) -> None:
        if event["type"] == "http.response.start":
            self.response.status = event["status"]
            self.response.headers = {k.decode(): v.decode() for k, v in event["headers"]}
        else:
            self.response.body += event.get("body", b"")
            self.response.is_over = not event.get("more_body", False)
        self.changed.set()

    def close(self) -> None:
        """The client goes away."""
        self._events.put_nowait({"type": "http.disconnect"})

    async def until(self, count: int) -> list[dict[str, Any]]:
        """The messages, once there are so many."""
        while len(self.response.messages) < count:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 60)
        return self.response.messages


class Http:
    """A client that speaks HTTP."""

    def __init__(self, app: McpApp, host: str = "127.0.0.1:8000") -> None:
        self._app = app
        self._host = host
        self.session = ""

    def begin(
        self, body: Any, headers: dict[str, str] | None = None, *, method: str = "POST", path: str = "/mcp"
    ) -> Exchange:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        plain = {
            "host": self._host,
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        if self.session:
            plain["mcp-session-id"] = self.session
        return Exchange(self._app, method, {**plain, **(headers or {})}, raw, path)

    async def post(
        self, body: Any, headers: dict[str, str] | None = None, *, method: str = "POST"
    ) -> Response:
        exchange = self.begin(body, headers, method=method)
        await asyncio.wait_for(exchange.task, 20)
        return exchange.response

    async def handshake(self, capabilities: dict[str, Any] | None = None) -> Response:
        params = {
            "protocolVersion": HANDSHAKE,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "tests"},
        }
        response = await self.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        self.session = response.headers.get("mcp-session-id", "")
        return response

    async def ask(self, method: str, params: dict[str, Any] | None = None, number: int = 2) -> Response:
        return await self.post({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}})

    async def modern(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        capabilities: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Response:
        return await self.post(*modern_request(method, params, capabilities, headers))


def modern_request(
    method: str,
    params: dict[str, Any] | None = None,
    capabilities: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[dict[str, Any], dict[str, str]]:
    given = {**(params or {}), "_meta": {**meta(capabilities), **(params or {}).get("_meta", {})}}
    name = given.get("name") or given.get("uri") or given.get("taskId")
    said = {"mcp-protocol-version": MODERN, "mcp-method": method, **({"mcp-name": name} if name else {})}
    wanted = {key: value for key, value in {**said, **(headers or {})}.items() if value}
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": given}, wanted
