"""HTTP session with one MCP server: protocol version, session id and credentials sent with each exchange.

Each exchange is vetted and dialed like that of any tool (SSRF protection), and retried with other credentials
after 401 or 403. Replies to the server have a time limit of their own, and so has the DELETE that ends a
session (2025-11-25, Session Management). The server is hostile: only the first session id is kept, if it is a
valid header value, and the secrets that the server was given are redacted from its messages.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, Protocol

from toolkeep.definitions.constraints import NetworkBounds
from toolkeep.limits import OUTPUT_CAP_BYTES
from toolkeep.mcp_client.transport import UpstreamFailed, read
from toolkeep.mcp_protocol.jsonrpc import Message
from toolkeep.mcp_protocol.versions import HANDSHAKE_VERSIONS
from toolkeep.network.allowlist import HostAllowlist
from toolkeep.network.budget import Budget
from toolkeep.network.errors import NetworkError
from toolkeep.network.fetch import opened
from toolkeep.network.http_endpoint import Request
from toolkeep.network.http_exchange import OpenAnswer
from toolkeep.sandbox.frames import in_thread_if_large

RESUMPTIONS: Final = 10
"""Maximum number of reconnects (Last-Event-ID) for the stream of one request."""
BEST_EFFORT_SECONDS: Final = 1.0
"""Time limit for cancellation and session end; the caller should not notice it."""

_ACCEPTED: Final = "application/json, text/event-stream"
_SESSION: Final = "mcp-session-id"
_SESSION_CHARS: Final = 256
"""Maximum length of a session id, which each request carries in a header; a UUID has 36."""
_REQUESTS: Final = 4 + RESUMPTIONS
_REPLY_SECONDS: Final = 10.0
"""Time limit for replies to server requests, which no call's deadline bounds."""
_REFUSALS: Final = 3
"""Maximum number of retries of one request with other credentials."""

Headers = Callable[[], Mapping[str, str]]


class Access(Protocol):
    """Credentials for a server that demands authorization."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Tokens to redact from the server's messages."""

    async def authorization(self) -> str:
        """The `Authorization` header; empty if there is no token yet. Raises `UpstreamFailed`."""

    async def refused(self, status: int, challenge: str) -> bool:
        """Handle a 401 or 403; whether to retry. Raises `UpstreamFailed`."""


class HttpSession:
    """HTTP session state of one server."""

    def __init__(
        self,
        url: str,
        reach: HostAllowlist,
        headers: Headers,
        access: Access | None = None,
        secrets: tuple[str, ...] = (),
    ) -> None:
        """`headers` returns the operator's headers for each request; `secrets` are the ones they contain."""
        self._secrets = secrets
        self._url = url
        self._reach = reach
        self._headers = headers
        self._access = access
        self._authorization = ""
        """The `Authorization` value sent last."""
        self._id = ""
        self.version = ""

    @property
    def has_handshake(self) -> bool:
        """Whether the version has sessions and resumable streams (up to 2025-11-25)."""
        return self.version in HANDSHAKE_VERSIONS

    def settle(self, version: str) -> None:
        """Send the negotiated version from here on; 2026-07-28 has no sessions."""
        self.version = version
        self._id = self._id if self.has_handshake else ""

    async def read(self, raw: bytes) -> Message:
        """Parse one message, with the server's secrets and tokens redacted."""
        tokens = self._access.secrets if self._access is not None else ()
        return await in_thread_if_large(len(raw), partial(read, raw, (*self._secrets, *tokens)))

    @asynccontextmanager
    async def opened(
        self, verb: str, headers: Mapping[str, str], body: bytes | None, budget: Budget
    ) -> AsyncIterator[OpenAnswer]:
        """One exchange, retried with other credentials. Raises `UpstreamFailed`."""
        for tried in range(_REFUSALS + 1):
            if self._access is not None:
                # Fetched anew for each attempt: another call may have refreshed the token meanwhile.
                self._authorization = await self._access.authorization()
            async with self._exchange(verb, headers, body, budget) as answer:
                if answer.status not in (401, 403) or tried == _REFUSALS:
                    self._check(answer)
                    yield answer
                    return
                challenge = _challenge(answer)
            if self._access is None or not await self._access.refused(answer.status, challenge):
                raise _unauthorized(answer.status)

    async def tell(self, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send a notification or response; the body of the answer is not read. Raises `UpstreamFailed`."""
        async with self.opened("POST", headers or {}, body, exchange_budget()):
            pass

    async def reply(self, body: bytes) -> None:
        """Reply to a server request within a time limit. Raises `UpstreamFailed`."""
        try:
            async with asyncio.timeout(_REPLY_SECONDS):
                await self.tell(body)
        except TimeoutError:
            raise UpstreamFailed(f"it did not accept a reply in {_REPLY_SECONDS:g} s") from None

    async def send_best_effort(self, body: bytes) -> None:
        """Send a cancellation, best effort."""
        await self._send_best_effort("POST", body)

    async def end(self) -> None:
        """End the session with DELETE, best effort; the server may not support it (405)."""
        if self._id:
            await self._send_best_effort("DELETE", None)
            self._id = ""

    async def _send_best_effort(self, verb: str, body: bytes | None) -> None:
        """Best effort with the current credentials.

        A token refresh takes time, and the new tokens could be lost halfway.
        """
        with suppress(UpstreamFailed, TimeoutError):
            async with (
                asyncio.timeout(BEST_EFFORT_SECONDS),
                self._exchange(verb, {}, body, exchange_budget()),
            ):
                pass

    @asynccontextmanager
    async def _exchange(
        self, verb: str, extra: Mapping[str, str], body: bytes | None, budget: Budget
    ) -> AsyncIterator[OpenAnswer]:
        asked = Request(
            method=verb, url=self._url, headers=self._request_headers(verb, extra, body), body=body
        )
        try:
            async with opened(asked, self._reach, budget) as answer:
                yield answer
        except NetworkError as error:
            raise UpstreamFailed(error.reason) from error

    def _request_headers(
        self, verb: str, extra: Mapping[str, str], body: bytes | None
    ) -> tuple[tuple[str, str], ...]:
        """Request headers.

        A token replaces the operator's own `Authorization` header, so that only one is sent.
        """
        headers = {"Accept": "text/event-stream" if verb == "GET" else _ACCEPTED, **self._headers()}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self.version:
            headers["MCP-Protocol-Version"] = self.version
        if self._id:
            headers["Mcp-Session-Id"] = self._id
        if self._authorization:
            headers = {name: text for name, text in headers.items() if name.lower() != "authorization"}
            headers["Authorization"] = self._authorization
        return tuple({**headers, **extra}.items())

    def _check(self, answer: OpenAnswer) -> None:
        """Raise for an error status, and store the session id of the handshake."""
        if answer.status in (401, 403):
            raise _unauthorized(answer.status)
        if answer.status == 404 and self._id:
            self._id = ""  # the session is gone; no DELETE
            raise UpstreamFailed("its session has expired")
        if answer.status >= 300 and kind_of(answer) != "application/json":
            raise UpstreamFailed(f"it answered with status {answer.status}")
        given = answer.header(_SESSION)
        # Only during the handshake: a later id could move our requests into another client's session.
        if given and not self.version and not self._id:
            if len(given) > _SESSION_CHARS or not given.isascii() or not given.isprintable():
                raise UpstreamFailed("it gave a session id that cannot be used")
            self._id = given


def exchange_budget() -> Budget:
    """Network budget of one request over all of its streams."""
    return Budget(NetworkBounds(max_requests=_REQUESTS, max_bytes=2 * OUTPUT_CAP_BYTES))


def kind_of(answer: OpenAnswer) -> str:
    """The media type of a response."""
    return answer.content_type.partition(";")[0].strip().lower()


def _challenge(answer: OpenAnswer) -> str:
    """The Bearer challenge among the `WWW-Authenticate` headers."""
    offered = [value for name, value in answer.headers if name == "www-authenticate"]
    return next((value for value in offered if value[:7].lower() == "bearer "), "")


def _unauthorized(status: int) -> UpstreamFailed:
    wanted = "it requires credentials: configure a secret for it, or sign in"
    return UpstreamFailed(f"it answered with status {status}: {wanted}")
