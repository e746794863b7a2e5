"""Speaks to an MCP server over streamable HTTP: each request a POST, vetted and dialled like any tool's.

The answer is one message, or a stream of events that holds it. A stream is read as it comes: progress is
handed on, what the server asks is answered, and the answer ends it. One that breaks off is taken up again
where the server gave its events ids (2025-11-25, Resumability). Between requests nothing is kept open, unless
somebody answers questions of servers: those may come on a stream of their own (Listening for Messages).
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from toolkeep.definitions.constraints import NetworkBounds
from toolkeep.limits import OUTPUT_CAP_BYTES
from toolkeep.network.budget import Budget
from toolkeep.network.endpoint import Request
from toolkeep.network.errors import NetworkError
from toolkeep.network.exchange import OpenAnswer
from toolkeep.network.fetching import opened
from toolkeep.network.reaching import HostReach
from toolkeep.sources.mcp.event_stream import EventReader, events_of
from toolkeep.sources.mcp.speaking import Heard, Progress, UpstreamFailed, answered, read
from toolkeep.wire.era import HANDSHAKE_VERSIONS, NAMED_BY
from toolkeep.wire.messages import Message, notification, request
from toolkeep.wire.mirrored import header_value
from toolkeep.wording import HIDDEN

if TYPE_CHECKING:
    from toolkeep.sources.mcp.questions import Questions

_ACCEPTED: Final = "application/json, text/event-stream"
_SESSION: Final = "mcp-session-id"
_SESSION_CHARS: Final = 256
_RESUMPTIONS: Final = 10
"""How often the stream of one request is taken up again."""
_REQUESTS: Final = 4 + _RESUMPTIONS
_REPLIES: Final = 50
"""What a server may ask of us while it answers one request."""
_DEFAULT_RETRY_MS: Final = 1_000
_LISTEN_SECONDS: Final = 2.0
"""How long a server may take to begin the stream of what it says unasked, before a call goes on without."""
_TOKEN_CHARS: Final = 8
"""Of a token that is looked for in answers; a shorter one would be found by chance."""
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


class HttpSpeaker:
    """One server by its address."""

    def __init__(
        self,
        url: str,
        reach: HostReach,
        headers: Headers,
        access: Access | None = None,
        questions: "Questions | None" = None,
    ) -> None:
        """`headers` gives those of the operator, secrets and all, when a request is made."""
        self._url = url
        self._reach = reach
        self._headers = headers
        self._access = access
        self._ids = itertools.count(1)
        self._version = ""
        self._session = ""
        self._heard = Heard(questions, self._reply)
        self._is_closed = False
        self._hearing: asyncio.Task[None] | None = None
        self._could_hear = asyncio.Event()
        self._has_stream: bool | None = None
        """Whether it has a stream for what it says unasked, once that is known."""
        self._unasked_replies = 0

    @property
    def is_alive(self) -> bool:
        """Whether it can still be talked to."""
        return not self._is_closed

    def take_change(self) -> bool:
        """Whether the server said that its tools are others by now."""
        return self._heard.take_change()

    def settle(self, version: str) -> None:
        """Say the version with each request from here on."""
        self._version = version

    async def listen(self) -> None:
        """Hold a stream for what the server says unasked; goes on once it is there, or is not coming."""
        if self._version not in HANDSHAKE_VERSIONS or self._has_stream is False:
            return
        if self._hearing is None or self._hearing.done():
            self._could_hear = asyncio.Event()
            self._hearing = asyncio.get_running_loop().create_task(self._hear())
        try:
            async with asyncio.timeout(_LISTEN_SECONDS):
                await self._could_hear.wait()
        except TimeoutError:
            self._could_hear.set()  # later calls do not wait for it again

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        on_progress: Progress | None = None,
        mirrored: Mapping[str, str] | None = None,
    ) -> Any:
        """The result of a request."""
        number = next(self._ids)
        if on_progress is not None:
            self._heard.listen(number, on_progress)
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": number}}
        headers = {**self._said_twice(method, params), **(mirrored or {})}
        try:
            message = await self._answer(headers, request(number, method, params), number)
            self._heard.answer()
            self._unasked_replies = 0
            return answered(message)
        except UpstreamFailed as failed:
            self._is_closed = self._is_closed or failed.is_over
            raise
        finally:
            self._heard.forget(number)

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Tell it something."""
        await self._tell(self._said_twice(method, params or {}), notification(method, params))

    def attend(self, *, closely: bool) -> None:
        """Nothing of it runs here."""

    async def close(self) -> None:
        """Forget it."""
        self._is_closed = True
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.wait({self._hearing})

    def abandon(self) -> None:
        """Nothing is held."""

    def _said_twice(self, method: str, params: dict[str, Any]) -> dict[str, str]:
        """The headers that repeat what the body says."""
        if not self._version:
            return {}
        named = params.get(NAMED_BY.get(method, ""))
        said = {"Mcp-Method": method}
        return {**said, "Mcp-Name": header_value(named)} if isinstance(named, str) else said

    async def _answer(self, headers: Mapping[str, str], body: bytes, number: int) -> Message:
        """The message that answers a request, over as many streams as it takes."""
        reader, budget = EventReader(), _budget()
        found = await self._look("POST", headers, body, number, reader, budget)
        for _ in range(_RESUMPTIONS):
            if found is not None:
                return found
            if not reader.last_id or self._version not in HANDSHAKE_VERSIONS:
                break
            wait_ms = _DEFAULT_RETRY_MS if reader.retry_ms is None else reader.retry_ms
            await asyncio.sleep(wait_ms / 1_000)  # the server says how long (2025-11-25, Transports)
            reader.begin()
            again = {"Last-Event-ID": reader.last_id}
            found = await self._look("GET", again, None, number, reader, budget)
        if found is None:
            raise UpstreamFailed("it gave no answer")
        return found

    async def _look(
        self,
        verb: str,
        headers: Mapping[str, str],
        body: bytes | None,
        number: int,
        reader: EventReader,
        budget: Budget,
    ) -> Message | None:
        """The answer to a request in what one exchange says; None where a stream ends before it."""
        async with self._opened(verb, headers, body, budget) as answer:
            if _kind(answer) == "application/json":
                return self._own(self._read(await _whole(answer)), number)
            if _kind(answer) != "text/event-stream":
                raise UpstreamFailed("it answered with what is neither JSON nor a stream of events")
            return await self._in_stream(answer, number, reader)

    async def _hear(self) -> None:
        """What the server says unasked, over as many streams as it takes, within bounds."""
        reader, budget = EventReader(), _budget()
        try:
            for _ in range(_RESUMPTIONS):
                if self._is_closed:
                    return
                await self._hear_stream(reader, budget)
                self._could_hear.clear()  # a call that begins now waits for the next one
                await asyncio.sleep((reader.retry_ms or _DEFAULT_RETRY_MS) / 1_000)
                reader.begin()
        except UpstreamFailed:
            self._has_stream = self._has_stream is True
        finally:
            self._could_hear.set()

    async def _hear_stream(self, reader: EventReader, budget: Budget) -> None:
        again = {"Last-Event-ID": reader.last_id} if reader.last_id else {}
        async with self._opened("GET", again, None, budget) as answer:
            if _kind(answer) != "text/event-stream":
                raise UpstreamFailed("it has no stream for what it says unasked")
            self._has_stream = True
            self._could_hear.set()
            try:
                async with aclosing(events_of(answer.pieces(), reader)) as events:
                    async for data in events:
                        await self._take_unasked(self._read(data))
            except UpstreamFailed:
                self._is_closed = True
                raise
            except NetworkError:
                return

    async def _take_unasked(self, message: Message) -> None:
        if not message.method:
            raise UpstreamFailed("it answered a request that nobody made")
        if (reply := self._heard.take(message)) is not None:
            self._unasked_replies += 1
            if self._unasked_replies > _REPLIES:
                raise UpstreamFailed(f"it asked for more than {_REPLIES} things at once")
            with suppress(UpstreamFailed):
                await self._reply(reply)

    async def _in_stream(self, answer: OpenAnswer, number: int, reader: EventReader) -> Message | None:
        replies = 0
        try:
            async with aclosing(events_of(answer.pieces(), reader)) as events:
                async for data in events:
                    message = self._read(data)
                    if not message.method:
                        return self._own(message, number)
                    if (reply := self._heard.take(message)) is not None:
                        replies += 1
                        if replies > _REPLIES:
                            raise UpstreamFailed(f"it asked for more than {_REPLIES} things at once")
                        with suppress(UpstreamFailed):  # what it makes of our no is its own affair
                            await self._reply(reply)
        except NetworkError as error:
            if not reader.last_id:
                raise UpstreamFailed(error.reason) from error
        return None

    def _read(self, raw: bytes) -> Message:
        """One message, without the tokens that the server was shown."""
        for secret in self._access.secrets if self._access is not None else ():
            if len(secret) >= _TOKEN_CHARS:
                raw = raw.replace(secret.encode(), HIDDEN.encode())
        return read(raw)

    def _own(self, message: Message, number: int) -> Message:
        if message.method or message.id != number:
            raise UpstreamFailed("it answered a request that nobody made")
        return message

    async def _reply(self, body: bytes) -> None:
        await self._tell({}, body)

    async def _tell(self, headers: Mapping[str, str], body: bytes) -> None:
        """Send what is not answered; what is said to it is read, and thrown away."""
        async with self._opened("POST", headers, body, _budget()) as answer:
            if _kind(answer) != "text/event-stream":
                await _whole(answer)

    @asynccontextmanager
    async def _opened(
        self, verb: str, headers: Mapping[str, str], body: bytes | None, budget: Budget
    ) -> AsyncIterator[OpenAnswer]:
        """One exchange, tried again where other credentials may do."""
        for tried in range(_REFUSALS + 1):
            asked = await self._asked(verb, headers, body)
            async with _reached(asked, self._reach, budget) as answer:
                if answer.status not in (401, 403) or tried == _REFUSALS:
                    self._check(answer)
                    yield answer
                    return
                challenge = _challenge(answer)
            if self._access is None or not await self._access.refused(answer.status, challenge):
                raise _wants_credentials(answer.status)

    async def _asked(self, verb: str, more: Mapping[str, str], body: bytes | None) -> Request:
        headers = {"Accept": _ACCEPTED if verb == "POST" else "text/event-stream", **self._headers()}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._version:
            headers["MCP-Protocol-Version"] = self._version
        if self._session:
            headers["Mcp-Session-Id"] = self._session
        if self._access is not None and (shown := await self._access.authorization()):
            headers = {name: text for name, text in headers.items() if name.lower() != "authorization"}
            headers["Authorization"] = shown
        return Request(method=verb, url=self._url, headers=tuple({**headers, **more}.items()), body=body)

    def _check(self, answer: OpenAnswer) -> None:
        """Raise for an answer that is none, and remember the session that it begins."""
        if answer.status in (401, 403):
            raise _wants_credentials(answer.status)
        if answer.status == 404 and self._session:
            raise UpstreamFailed("it has forgotten the session")
        if answer.status >= 300 and _kind(answer) != "application/json":
            raise UpstreamFailed(f"it answered with status {answer.status}")
        given = answer.header(_SESSION)
        if given and not self._session:
            if len(given) > _SESSION_CHARS or not given.isascii() or not given.isprintable():
                raise UpstreamFailed("it gave a session id that cannot be used")
            self._session = given


@asynccontextmanager
async def _reached(asked: Request, reach: HostReach, budget: Budget) -> AsyncIterator[OpenAnswer]:
    try:
        async with opened(asked, reach, budget) as answer:
            yield answer
    except NetworkError as error:
        raise UpstreamFailed(error.reason) from error


async def _whole(answer: OpenAnswer) -> bytes:
    return await answer.body(OUTPUT_CAP_BYTES)


def _challenge(answer: OpenAnswer) -> str:
    """What it says about tokens; a server may offer other ways beside that."""
    offered = [value for name, value in answer.headers if name == "www-authenticate"]
    return next((value for value in offered if value[:7].lower() == "bearer "), "")


def _wants_credentials(status: int) -> UpstreamFailed:
    wanted = "it wants credentials, which the operator gives as a secret, or by signing in"
    return UpstreamFailed(f"it answered with status {status}: {wanted}")


def _budget() -> Budget:
    return Budget(NetworkBounds(max_requests=_REQUESTS, max_bytes=2 * OUTPUT_CAP_BYTES))


def _kind(answer: OpenAnswer) -> str:
    return answer.content_type.partition(";")[0].strip().lower()
