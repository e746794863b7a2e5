"""MCP client transport over stdio: a confined persistent process, one JSON-RPC message per line."""

import asyncio
import contextlib
import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from toolkeep.execution.redact import redacted
from toolkeep.limits import OUTPUT_CAP_BYTES
from toolkeep.mcp_client.transport import InboundMessages, Progress, UpstreamFailed, answered, read
from toolkeep.mcp_protocol.jsonrpc import Message, notification, request
from toolkeep.sandbox.frames import in_thread_if_large
from toolkeep.sandbox.persistent_process import ExitReason, LineProcess, ProcessExited
from toolkeep.text.display import excerpt

if TYPE_CHECKING:
    from toolkeep.mcp_client.elicitation import Elicitations

log = logging.getLogger("toolkeep.execution")

LINE_BYTES: Final = OUTPUT_CAP_BYTES
_UNREAD_BYTES: Final = 8 << 20
"""Maximum number of bytes that a server may leave unread."""
_BANNER_BYTES: Final = 64 * 1024
"""Bytes that a server may write to its standard output before its first message: a banner, or log lines."""
_BANNER_LINES: Final = 3
"""Lines of it that are kept to be shown."""
_SHOWN_CHARS: Final = 200
"""Characters of a line of it."""
_CANCELLED: Final = 1_000
"""Cancelled request ids that are remembered, because a late response to one is legitimate."""


class StdioTransport:
    """Stdio transport to one running server."""

    def __init__(
        self,
        process: LineProcess,
        questions: "Elicitations | None" = None,
        secrets: tuple[str, ...] = (),
    ) -> None:
        """`secrets` are those that the process was given; they are redacted from its messages."""
        self._secrets = secrets
        self._process = process
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._cancelled: OrderedDict[int, None] = OrderedDict()
        """Cancelled requests that may still be answered."""
        self._inbound = InboundMessages(questions, self._send)
        self._failure: UpstreamFailed | None = None
        self.banner: list[str] = []
        """First lines of what it wrote before its first message, which was skipped."""
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @property
    def is_alive(self) -> bool:
        """Whether the process is usable."""
        return self._failure is None and self._process.is_alive

    @property
    def last_words(self) -> str:
        """The end of its stderr, for the log."""
        return self._process.last_words

    def take_list_changed(self) -> frozenset[str]:
        """Which of `tools`, `prompts` and `resources` were notified as `list_changed` since the last time."""
        return self._inbound.take_list_changed()

    def watching(self, uri: str, heard: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
        """Call `heard` for each `resources/updated` of a URI meanwhile."""
        return self._inbound.watching(uri, heard)

    def settle(self, version: str) -> None:
        """No-op: framing is the same in all versions."""

    async def listen(self) -> None:
        """No-op: stdout is always read."""

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        on_progress: Progress | None = None,
        mirrored: Mapping[str, str] | None = None,  # noqa: ARG002 -- lines have no headers
    ) -> Any:
        """Send a request and return its result."""
        number = next(self._ids)
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        if on_progress is not None:
            self._inbound.listen(number, on_progress)
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": number}}
        try:
            await self._send(request(number, method, params))
            return await waiting
        except asyncio.CancelledError:
            self._cancel(number, method)
            raise
        finally:
            self._waiting.pop(number, None)
            self._inbound.forget(number)

    def _cancel(self, number: int, method: str) -> None:
        """Send `notifications/cancelled`; `initialize` must not be cancelled (Cancellation)."""
        self._cancelled[number] = None
        if len(self._cancelled) > _CANCELLED:
            # Bounded: most cancelled requests are never answered, and would be remembered for ever.
            self._cancelled.popitem(last=False)
        if method != "initialize":
            with contextlib.suppress(UpstreamFailed):
                self._send_soon(notification("notifications/cancelled", {"requestId": number}))

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification."""
        await self._send(notification(method, params))

    def set_active(self, *, is_active: bool) -> None:
        """Tell the process whether a call is active."""
        self._process.set_active(is_active=is_active)

    async def suspend(self) -> None:
        """Suspend the process between calls. Raises SandboxBroken."""
        await self._process.suspend()

    async def resume(self) -> None:
        """Resume the process. Raises SandboxBroken."""
        await self._process.resume()

    async def close(self) -> None:
        """Terminate the process and everything it started."""
        self._fail(UpstreamFailed("it was ended"))
        self._reading.cancel()
        await asyncio.wait({self._reading})
        await self._process.close()

    def discard(self) -> None:
        """Discard it without an event loop."""
        self._process.discard()

    async def _send(self, data: bytes) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            await self._process.send(data + b"\n")
        except ProcessExited as over:
            self._fail(exit_failure(over))
            raise exit_failure(over) from over

    def _send_soon(self, data: bytes) -> None:
        """Send without waiting: a server that does not read must not block us."""
        if self._process.waiting_bytes > _UNREAD_BYTES:
            self._fail(UpstreamFailed("it does not read its standard input"))
            return
        sending = asyncio.get_running_loop().create_task(self._send(data))
        sending.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _read(self) -> None:
        try:
            line = await self._first_message()
            while True:
                # Large messages are parsed in a thread: parsing would block the event loop for all calls.
                self._dispatch(await in_thread_if_large(len(line), partial(read, line, self._secrets)))
                line = await self._process.line()
        except ProcessExited as over:
            self._fail(exit_failure(over))
        except UpstreamFailed as failed:
            self._fail(failed)
        await self._process.close()

    async def _first_message(self) -> bytes:
        """The first line that may be a message; programs print banners, which no client can rule out.

        Only before the first message: later, a line that is none may be half of one that was lost.
        """
        skipped = 0
        while b'"jsonrpc"' not in (line := await self._process.line()):
            skipped += len(line) + 1
            if skipped > _BANNER_BYTES:
                raise UpstreamFailed(f"it wrote {_BANNER_BYTES} bytes that are no message")
            if line.strip() and len(self.banner) < _BANNER_LINES:
                text: str = redacted(line.decode("utf-8", "replace"), self._secrets, shortest=1)
                self.banner.append(excerpt(text, _SHOWN_CHARS))
        if skipped:
            log.warning("a server wrote text before its first message", extra={"text": self.banner})
        return line

    def _dispatch(self, message: Message) -> None:
        if message.method:
            if (reply := self._inbound.take(message)) is not None:
                self._send_soon(reply)
            return
        number = message.id if type(message.id) is int else 0
        # The response crossed our cancellation: legitimate, and dropped.
        if number in self._cancelled:
            del self._cancelled[number]
            return
        waiting = self._waiting.get(number)
        if waiting is None or waiting.done():
            # An unknown id may be meant for another call: end the session rather than guess.
            raise UpstreamFailed("it answered a request that was not made")
        self._inbound.answer()
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
                waiting.exception()  # marks it as retrieved: a caller that fails to send does not await it


def exit_failure(over: ProcessExited) -> UpstreamFailed:
    """The failure for a process that exited."""
    failed = _exit_reason(over)
    failed.last_words, failed.exited = over.last_words or over.text, over
    return failed


def _exit_reason(over: ProcessExited) -> UpstreamFailed:
    if over.why is ExitReason.TOO_LONG:
        return UpstreamFailed(f"it sent a message of more than {LINE_BYTES} bytes")
    if over.why is ExitReason.OUT_OF_MEMORY:
        return UpstreamFailed("it took more memory than it is granted")
    if over.why is ExitReason.UNSTARTED:
        return UpstreamFailed("its program cannot be started")
    how = "" if over.status is None else f" with status {over.status}"
    return UpstreamFailed(
        f"it ended{how}" if over.why is ExitReason.ENDED else "it closed its standard output"
    )
