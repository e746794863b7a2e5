"""Speaks to an MCP server over its standard streams: a confined program that stays, a message a line."""

import asyncio
import contextlib
import itertools
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from toolkeep.limits import OUTPUT_CAP_BYTES
from toolkeep.sandbox.frames import aside
from toolkeep.sandbox.resident import Over, Resident, ResidentOver
from toolkeep.sources.mcp.speaking import Heard, Progress, UpstreamFailed, answered, read
from toolkeep.wire.messages import Message, notification, request

if TYPE_CHECKING:
    from toolkeep.sources.mcp.questions import Questions

LINE_BYTES: Final = OUTPUT_CAP_BYTES
_UNREAD_BYTES: Final = 8 << 20
"""What a server may leave unread of what it was sent."""
_GIVEN_UP: Final = 1_000
"""Cancelled requests that are remembered; most are never answered, and that is as it should be."""


class LineSpeaker:
    """One running server."""

    def __init__(
        self, resident: Resident, questions: "Questions | None" = None, secrets: tuple[str, ...] = ()
    ) -> None:
        """`secrets` are those that the program was given."""
        self._secrets = secrets
        self._resident = resident
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._given_up: OrderedDict[int, None] = OrderedDict()
        """Requests that were cancelled, and may be answered all the same."""
        self._heard = Heard(questions, self._send)
        self._failure: UpstreamFailed | None = None
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @property
    def is_alive(self) -> bool:
        """Whether it can still be talked to."""
        return self._failure is None and self._resident.is_alive

    @property
    def last_words(self) -> str:
        """The end of its standard error, for the log."""
        return self._resident.last_words

    def take_change(self) -> bool:
        """Whether the server said that its tools are others by now."""
        return self._heard.take_change()

    def settle(self, version: str) -> None:
        """Lines are the same in all versions."""

    async def listen(self) -> None:
        """Its lines are read all the time."""

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        on_progress: Progress | None = None,
        mirrored: Mapping[str, str] | None = None,  # noqa: ARG002 -- lines have no headers
    ) -> Any:
        """The result of a request."""
        number = next(self._ids)
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        if on_progress is not None:
            self._heard.listen(number, on_progress)
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": number}}
        try:
            await self._send(request(number, method, params))
            return await waiting
        except asyncio.CancelledError:
            self._give_up(number, method)
            raise
        finally:
            self._waiting.pop(number, None)
            self._heard.forget(number)

    def _give_up(self, number: int, method: str) -> None:
        """Say that nobody waits for an answer any more; a handshake is never cancelled (Cancellation)."""
        self._given_up[number] = None
        if len(self._given_up) > _GIVEN_UP:
            self._given_up.popitem(last=False)
        if method != "initialize":
            with contextlib.suppress(UpstreamFailed):
                self._send_soon(notification("notifications/cancelled", {"requestId": number}))

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Tell it something."""
        await self._send(notification(method, params))

    def attend(self, *, closely: bool) -> None:
        """Say whether it has a call now."""
        self._resident.attend(closely=closely)

    async def suspend(self) -> None:
        """Stop its program between calls. Raises SandboxBroken."""
        await self._resident.suspend()

    async def resume(self) -> None:
        """Let its program go on. Raises SandboxBroken."""
        await self._resident.resume()

    async def close(self) -> None:
        """End it, and everything that it started."""
        self._fail(UpstreamFailed("it was ended"))
        self._reading.cancel()
        await asyncio.wait({self._reading})
        await self._resident.close()

    def abandon(self) -> None:
        """Let go of it when no event loop is left."""
        self._resident.abandon()

    async def _send(self, data: bytes) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            await self._resident.send(data + b"\n")
        except ResidentOver as over:
            self._fail(ended(over))
            raise ended(over) from over

    def _send_soon(self, data: bytes) -> None:
        """Without waiting: a server that does not read is not waited for."""
        if self._resident.waiting_bytes > _UNREAD_BYTES:
            self._fail(UpstreamFailed("it does not read what it is sent"))
            return
        sending = asyncio.get_running_loop().create_task(self._send(data))
        sending.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _read(self) -> None:
        try:
            while True:
                line = await self._resident.line()
                self._understand(await aside(len(line), partial(read, line, self._secrets)))
        except ResidentOver as over:
            self._fail(ended(over))
        except UpstreamFailed as failed:
            self._fail(failed)
        await self._resident.close()

    def _understand(self, message: Message) -> None:
        if message.method:
            if (reply := self._heard.take(message)) is not None:
                self._send_soon(reply)
            return
        number = message.id if type(message.id) is int else 0
        if number in self._given_up:
            del self._given_up[number]
            return
        waiting = self._waiting.get(number)
        if waiting is None or waiting.done():
            raise UpstreamFailed("it answered a request that nobody made")
        self._heard.answer()
        try:
            waiting.set_result(answered(message))
        except UpstreamFailed as error:
            waiting.set_exception(error)

    def _fail(self, failure: UpstreamFailed) -> None:
        if self._failure is None:
            self._failure = failure
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(self._failure)
                waiting.exception()  # whoever cannot even send hears of it there, and does not wait


def ended(over: ResidentOver) -> UpstreamFailed:
    """Why a program says nothing more."""
    failed = _ended(over)
    failed.last_words = over.last_words or over.text
    return failed


def _ended(over: ResidentOver) -> UpstreamFailed:
    if over.why is Over.TOO_LONG:
        return UpstreamFailed(f"it sent a message of more than {LINE_BYTES} bytes")
    if over.why is Over.OUT_OF_MEMORY:
        return UpstreamFailed("it took more memory than it is granted")
    if over.why is Over.UNSTARTED:
        return UpstreamFailed("its program cannot be started")
    how = "" if over.status is None else f" with status {over.status}"
    return UpstreamFailed(f"it ended{how}" if over.why is Over.ENDED else "it closed its standard output")
