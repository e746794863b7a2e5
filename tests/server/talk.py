"""A client for the tests that speaks ASGI to the app, in this process."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from toolkeep import Keep
from toolkeep.server.app_factory import make_app
from toolkeep.server.asgi_app import KeepApp
from toolkeep.stores.api_tokens import MemoryTokens, Tokens

EVERYTHING = ("admin",)


@dataclass
class Response:
    """What came back."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_over: bool = False
    chunks: list[bytes] = field(default_factory=list)
    cookies: list[str] = field(default_factory=list)

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of a problem document, which it must be."""
        assert self.headers["content-type"] == "application/problem+json"
        assert self.data["status"] == self.status
        return str(self.data["code"])

    @property
    def events(self) -> list[tuple[str, Any]]:
        """Of a stream."""
        found = []
        for block in self.body.decode().split("\r\n\r\n"):
            lines = dict(
                line.split(": ", 1) for line in block.split("\r\n") if line and not line.startswith(":")
            )
            if lines:
                found.append((lines["event"], json.loads(lines["data"])))
        return found


class Pending:
    """A request under way."""

    def __init__(self, app: Any, scope: dict[str, Any], chunks: list[bytes]) -> None:
        self.response = Response()
        self._chunks = [*chunks]
        self._left = asyncio.Event()
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._chunks:
            return {"type": "http.request", "body": self._chunks.pop(0), "more_body": bool(self._chunks)}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            assert self.response.status == 0
            self.response.status = message["status"]
            names = [name for name, _ in message["headers"] if name != b"set-cookie"]
            assert len(set(names)) == len(names)
            given = message["headers"]
            self.response.cookies = [value.decode() for name, value in given if name == b"set-cookie"]
            self.response.headers = {n.decode(): v.decode() for n, v in message["headers"]}
        else:
            assert not self.response.is_over
            self.response.body += message.get("body", b"")
            self.response.is_over = not message.get("more_body", False)
            if self.response.is_over:
                self._left.set()  # from then on a server says that nobody listens

    def leave(self) -> None:
        """Close the connection."""
        self._left.set()

    async def answered(self) -> Response:
        """The response, once it is whole; the app may still be at work."""
        await until(lambda: self.response.is_over or self.task.done())
        if self.task.done():
            self.task.result()
        return self.response


class Client:
    """Speaks to one app, with a token."""

    def __init__(self, app: KeepApp, tokens: Tokens, token: str = "") -> None:
        self.app = app
        self.tokens = tokens
        self.token = token
        self.requests: list[Pending] = []

    def as_agent(self, agent: str, *scopes: str) -> "Client":
        """Another client, with a token of its own."""
        made = self.tokens.make("a token", scopes or EVERYTHING, agent=agent)
        return Client(self.app, self.tokens, made.text)

    def begin(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        raw: bytes | list[bytes] | None = None,
    ) -> Pending:
        target, _, query = path.partition("?")
        sent = {"host": "127.0.0.1:8765", **({"authorization": f"Bearer {self.token}"} if self.token else {})}
        chunks = [b""] if raw is None else raw if isinstance(raw, list) else [raw]
        if body is not None:
            chunks = [json.dumps(body, separators=(",", ":")).encode()]
        if body is not None or raw is not None:
            sent["content-type"] = "application/json"
        sent |= headers or {}
        scope = {
            "type": "http",
            "method": method,
            "path": target,
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in sent.items()],
            "scheme": "http",
        }
        return Pending(self.app, scope, chunks)

    async def send(self, method: str, path: str, body: Any = None, **more: Any) -> Response:
        return await self.begin(method, path, body, **more).answered()

    async def get(self, path: str, **more: Any) -> Response:
        return await self.send("GET", path, **more)

    async def post(self, path: str, body: Any = None, **more: Any) -> Response:
        return await self.send("POST", path, {} if body is None and "raw" not in more else body, **more)

    async def call(self, tool: str, arguments: Any = None, **more: Any) -> Response:
        options = more.pop("options", {})
        return await self.post(f"/v1/tools/{tool}:call", {"arguments": arguments or {}, **options}, **more)


async def until(happened: Callable[[], object]) -> None:
    """Let the loop turn until something has happened."""
    async with asyncio.timeout(60):
        while not happened():  # noqa: ASYNC110 -- what happens knows nothing of tests
            await asyncio.sleep(0.001)


@asynccontextmanager
async def served(keep: Keep, **options: Any) -> AsyncIterator[Client]:
    """A client with every scope, for the agent `operator`."""
    tokens = Tokens(MemoryTokens())
    app = make_app(keep, tokens, **options)
    client = Client(app, tokens).as_agent("operator")
    try:
        yield client
    finally:
        await app.shutdown()
