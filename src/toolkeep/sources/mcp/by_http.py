"""Speaks to an MCP server over streamable HTTP: each request a POST, answered in one exchange or several.

The answer is one message, or a stream of events that holds it. A stream is read as it comes: progress is
handed on, what the server asks is answered, and the answer ends it. One that breaks off is taken up again
where the server gave its events ids (2025-11-25, Resumability). A request that is given up is cancelled
there: in the older era by a notification, in the newer one by closing its exchange. Between requests nothing
is kept open, unless somebody answers questions of servers (`unasked.py`).
"""

import asyncio
import itertools
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from toolkeep.limits import OUTPUT_CAP_BYTES
from toolkeep.network.budget import Budget
from toolkeep.network.errors import NetworkError
from toolkeep.network.exchange import OpenAnswer
from toolkeep.sources.mcp.event_stream import EventReader, events_of
from toolkeep.sources.mcp.http_session import (
    PARTING_SECONDS,
    RESUMPTIONS,
    HttpSession,
    exchange_budget,
    kind_of,
)
from toolkeep.sources.mcp.speaking import Heard, Progress, UpstreamFailed, answered
from toolkeep.sources.mcp.unasked import DEFAULT_RETRY_MS, Replies, UnaskedStream
from toolkeep.wire.era import NAMED_BY
from toolkeep.wire.messages import Message, notification, request
from toolkeep.wire.mirrored import header_value

if TYPE_CHECKING:
    from toolkeep.sources.mcp.questions import Questions


class HttpSpeaker:
    """One server by its address."""

    def __init__(self, session: HttpSession, questions: "Questions | None" = None) -> None:
        self._session = session
        self._ids = itertools.count(1)
        self._heard = Heard(questions, session.reply)
        self._unasked = UnaskedStream(session, self._heard)
        self._is_closed = False
        self._cancelling: set[asyncio.Task[None]] = set()

    @property
    def is_alive(self) -> bool:
        """Whether it can still be talked to."""
        return not self._is_closed and not self._unasked.has_failed

    def take_change(self) -> bool:
        """Whether the server said that its tools are others by now."""
        return self._heard.take_change()

    def settle(self, version: str) -> None:
        """Say the version with each request from here on."""
        self._session.settle(version)

    async def listen(self) -> None:
        """Hold a stream for what the server says unasked; goes on once it is there, or is not coming."""
        await self._unasked.listen()

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
            self._unasked.forgive()
            return answered(message)
        except UpstreamFailed as failed:
            self._is_closed = self._is_closed or failed.is_over
            raise
        except asyncio.CancelledError:
            self._cancel(number)
            raise
        finally:
            self._heard.forget(number)

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Tell it something."""
        await self._session.tell(notification(method, params), self._said_twice(method, params or {}))

    def attend(self, *, closely: bool) -> None:
        """Nothing of it runs here."""

    async def suspend(self) -> None:
        """Nothing of it runs here."""

    async def resume(self) -> None:
        """Nothing of it runs here."""

    async def close(self) -> None:
        """Say farewell, and forget it."""
        self._is_closed = True
        await self._unasked.close()
        if self._cancelling:
            await asyncio.wait(self._cancelling, timeout=PARTING_SECONDS)
        await self._session.end()

    def abandon(self) -> None:
        """Nothing is held."""

    def _cancel(self, number: int) -> None:
        """Say that nobody waits for an answer any more; whoever gave up does not wait for that either."""
        if not self._session.has_handshake:
            return  # the exchange was closed, which says it; and a handshake is never cancelled
        words = notification("notifications/cancelled", {"requestId": number})
        telling = asyncio.get_running_loop().create_task(self._session.tell_parting(words))
        self._cancelling.add(telling)
        telling.add_done_callback(self._cancelling.discard)

    def _said_twice(self, method: str, params: dict[str, Any]) -> dict[str, str]:
        """The headers that repeat what the body says."""
        if not self._session.version:
            return {}
        named = params.get(NAMED_BY.get(method, ""))
        said = {"Mcp-Method": method}
        return {**said, "Mcp-Name": header_value(named)} if isinstance(named, str) else said

    async def _answer(self, headers: Mapping[str, str], body: bytes, number: int) -> Message:
        """The message that answers a request, over as many streams as it takes."""
        reader, budget = EventReader(), exchange_budget()
        found = await self._look("POST", headers, body, number, reader, budget)
        for _ in range(RESUMPTIONS):
            if found is not None:
                return found
            if not reader.last_id or not self._session.has_handshake:
                break
            wait_ms = DEFAULT_RETRY_MS if reader.retry_ms is None else reader.retry_ms
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
        async with self._session.opened(verb, headers, body, budget) as answer:
            if kind_of(answer) == "application/json":
                return _own(await self._session.read(await answer.body(OUTPUT_CAP_BYTES)), number)
            if kind_of(answer) != "text/event-stream":
                raise UpstreamFailed("it answered with what is neither JSON nor a stream of events")
            return await self._in_stream(answer, number, reader)

    async def _in_stream(self, answer: OpenAnswer, number: int, reader: EventReader) -> Message | None:
        replies = Replies(self._session, self._heard)
        try:
            async with aclosing(events_of(answer.pieces(), reader)) as events:
                async for data in events:
                    message = await self._session.read(data)
                    if not message.method:
                        return _own(message, number)
                    await replies.take(message)
        except NetworkError as error:
            if not reader.last_id:
                raise UpstreamFailed(error.reason) from error
        return None


def _own(message: Message, number: int) -> Message:
    if message.method or message.id != number:
        raise UpstreamFailed("it answered a request that nobody made")
    return message
