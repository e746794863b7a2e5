"""What one MCP server by its address knows us by: version, session and credentials, sent with each exchange.

Each exchange is vetted and dialled like any tool's, and tried again where the server wants other credentials.
Replies are sent within a bound of their own, and so is the farewell that ends a session (2025-11-25, Session
Management). The server is hostile: the first session id that it gives is
kept, if a header can hold it, and its words come without the secrets that it was shown.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, Protocol

from toolkeep.definitions.constraints import NetworkBounds
from toolkeep.limits import OUTPUT_CAP_BYTES
from toolkeep.network.budget import Budget
from toolkeep.network.endpoint import Request
from toolkeep.network.errors import NetworkError
from toolkeep.network.exchange import OpenAnswer
from toolkeep.network.fetching import opened
from toolkeep.network.reaching import HostReach
from toolkeep.sandbox.frames import aside
from toolkeep.sources.mcp.speaking import UpstreamFailed, read
from toolkeep.wire.era import HANDSHAKE_VERSIONS
from toolkeep.wire.messages import Message

RESUMPTIONS: Final = 10
"""How often the stream of one request is taken up again."""
PARTING_SECONDS: Final = 1.0
"""How long a server may take to hear that a call or the session is over; nobody should notice it."""

_ACCEPTED: Final = "application/json, text/event-stream"
_SESSION: Final = "mcp-session-id"
_SESSION_CHARS: Final = 256
_REQUESTS: Final = 4 + RESUMPTIONS
_REPLY_SECONDS: Final = 10.0
"""How long a server may take to hear what it asked for; no call's deadline bounds that."""
_REFUSALS: Final = 3
"""How often one request is tried again with other credentials."""

Headers = Callable[[], Mapping[str, str]]


class Access(Protocol):
    """What lets us in where a server asks for it."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What is taken out of whatever the server says."""

    async def authorization(self) -> str:
        """The header `Authorization`; empty where there is nothing to show yet. Raises `UpstreamFailed`."""

    async def refused(self, status: int, challenge: str) -> bool:
        """Whether to try again, once what was shown did not do. Raises `UpstreamFailed`."""


class HttpSession:
    """One server, and what it knows us by."""

    def __init__(
        self,
        url: str,
        reach: HostReach,
        headers: Headers,
        access: Access | None = None,
        secrets: tuple[str, ...] = (),
    ) -> None:
        """`headers` gives those of the operator when a request is made; `secrets` stand in them."""
        self._secrets = secrets
        self._url = url
        self._reach = reach
        self._headers = headers
        self._access = access
        self._shown = ""
        """The credentials that were shown last."""
        self._id = ""
        self.version = ""

    @property
    def has_handshake(self) -> bool:
        """Whether the era with sessions and streams that can be taken up again is spoken."""
        return self.version in HANDSHAKE_VERSIONS

    def settle(self, version: str) -> None:
        """Say the version with each request from here on; in the newer era there are no sessions."""
        self.version = version
        self._id = self._id if self.has_handshake else ""

    async def read(self, raw: bytes) -> Message:
        """One message, without the secrets and tokens that the server was shown."""
        tokens = self._access.secrets if self._access is not None else ()
        return await aside(len(raw), partial(read, raw, (*self._secrets, *tokens)))

    @asynccontextmanager
    async def opened(
        self, verb: str, headers: Mapping[str, str], body: bytes | None, budget: Budget
    ) -> AsyncIterator[OpenAnswer]:
        """One exchange, tried again where other credentials may do. Raises `UpstreamFailed`."""
        for tried in range(_REFUSALS + 1):
            if self._access is not None:
                self._shown = await self._access.authorization()
            async with self._reached(verb, headers, body, budget) as answer:
                if answer.status not in (401, 403) or tried == _REFUSALS:
                    self._check(answer)
                    yield answer
                    return
                challenge = _challenge(answer)
            if self._access is None or not await self._access.refused(answer.status, challenge):
                raise _wants_credentials(answer.status)

    async def tell(self, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send what is not answered; what is said to it is not read. Raises `UpstreamFailed`."""
        async with self.opened("POST", headers or {}, body, exchange_budget()):
            pass

    async def reply(self, body: bytes) -> None:
        """Tell the server what it asked for, while it listens. Raises `UpstreamFailed`."""
        try:
            async with asyncio.timeout(_REPLY_SECONDS):
                await self.tell(body)
        except TimeoutError:
            raise UpstreamFailed(f"it did not take an answer in {_REPLY_SECONDS:g} s") from None

    async def tell_parting(self, body: bytes) -> None:
        """Say that something is over, as far as that goes: whether it was heard is nobody's concern."""
        await self._part("POST", body)

    async def end(self) -> None:
        """Say that the session is over, where there is one; the server may not want to know (405)."""
        if self._id:
            await self._part("DELETE", None)
            self._id = ""

    async def _part(self, verb: str, body: bytes | None) -> None:
        """With the credentials at hand: to get others takes time, and those may be lost half-way."""
        with suppress(UpstreamFailed, TimeoutError):
            async with (
                asyncio.timeout(PARTING_SECONDS),
                self._reached(verb, {}, body, exchange_budget()),
            ):
                pass

    @asynccontextmanager
    async def _reached(
        self, verb: str, more: Mapping[str, str], body: bytes | None, budget: Budget
    ) -> AsyncIterator[OpenAnswer]:
        asked = Request(method=verb, url=self._url, headers=self._said(verb, more, body), body=body)
        try:
            async with opened(asked, self._reach, budget) as answer:
                yield answer
        except NetworkError as error:
            raise UpstreamFailed(error.reason) from error

    def _said(self, verb: str, more: Mapping[str, str], body: bytes | None) -> tuple[tuple[str, str], ...]:
        headers = {"Accept": "text/event-stream" if verb == "GET" else _ACCEPTED, **self._headers()}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self.version:
            headers["MCP-Protocol-Version"] = self.version
        if self._id:
            headers["Mcp-Session-Id"] = self._id
        if self._shown:
            headers = {name: text for name, text in headers.items() if name.lower() != "authorization"}
            headers["Authorization"] = self._shown
        return tuple({**headers, **more}.items())

    def _check(self, answer: OpenAnswer) -> None:
        """Raise for an answer that is none, and remember the session that the handshake begins."""
        if answer.status in (401, 403):
            raise _wants_credentials(answer.status)
        if answer.status == 404 and self._id:
            self._id = ""  # there is nothing left to end
            raise UpstreamFailed("it has forgotten the session")
        if answer.status >= 300 and kind_of(answer) != "application/json":
            raise UpstreamFailed(f"it answered with status {answer.status}")
        given = answer.header(_SESSION)
        if given and not self.version and not self._id:
            if len(given) > _SESSION_CHARS or not given.isascii() or not given.isprintable():
                raise UpstreamFailed("it gave a session id that cannot be used")
            self._id = given


def exchange_budget() -> Budget:
    """What one request may use, over all of its streams."""
    return Budget(NetworkBounds(max_requests=_REQUESTS, max_bytes=2 * OUTPUT_CAP_BYTES))


def kind_of(answer: OpenAnswer) -> str:
    """The media type that an answer says it has."""
    return answer.content_type.partition(";")[0].strip().lower()


def _challenge(answer: OpenAnswer) -> str:
    """What it says about tokens; a server may offer other ways beside that."""
    offered = [value for name, value in answer.headers if name == "www-authenticate"]
    return next((value for value in offered if value[:7].lower() == "bearer "), "")


def _wants_credentials(status: int) -> UpstreamFailed:
    wanted = "it wants credentials, which the operator gives as a secret, or by signing in"
    return UpstreamFailed(f"it answered with status {status}: {wanted}")
