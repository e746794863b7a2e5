"""Server-sent events for open tabs: that something changed, never what; a tab then loads what it may see.

The state is polled once a second while a tab is open, since other processes of the keep answer approvals and
make calls too. What other servers ask and answer through a shared database is heard at once.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from toolkeep.errors import Code, ToolkeepError
from toolkeep.limits import CALLER_LISTENERS, LISTEN_SECONDS, LISTENERS
from toolkeep.mcp_server.http_response import RETRY
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.server.web.web_request import PageRequest
from toolkeep.stores.api_tokens import Scope

if TYPE_CHECKING:
    from toolkeep.server.service import Service

_ALIVE: Final = b": still here\n\n"
_ALIVE_EVERY_S: Final = 15.0
"""Interval of comment lines that keep proxies from closing an idle stream, as the HTML standard advises for
server-sent events."""
_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]


class LiveUpdates:
    """The event streams of open tabs."""

    def __init__(self, service: "Service") -> None:
        self._service = service
        self._queues: dict[asyncio.Queue[str | None], Caller] = {}
        self._looking: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Close the streams at shutdown."""
        for queue in self._queues:
            with contextlib.suppress(asyncio.QueueFull):  # a tab that does not read ends with the process
                queue.put_nowait(None)

    async def serve(self, request: PageRequest, caller: Caller) -> None:
        """Serve the event stream of one tab until it closes."""
        own = sum(1 for held in self._queues.values() if held.id == caller.id)
        # Streams are long-lived: without a limit for each caller, one could take all of them.
        if len(self._queues) >= LISTENERS or own >= CALLER_LISTENERS:
            raise RequestRefused(Code.NOT_SERVING, "too many open tabs", hint="close some")
        queue: asyncio.Queue[str | None] = asyncio.Queue(maxsize=32)
        self._queues[queue] = caller
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        gone = asyncio.create_task(_until_gone(request))
        try:
            await request.send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._tell(request, queue, gone)
        except asyncio.CancelledError:  # shutdown or revocation: end the stream properly
            await request.send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()
            del self._queues[queue]
            if not self._queues and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _tell(
        self, request: PageRequest, queue: "asyncio.Queue[str | None]", gone: "asyncio.Task[None]"
    ) -> None:
        await request.send({"type": "http.response.body", "body": _ALIVE, "more_body": True})
        while True:
            getting = asyncio.create_task(queue.get())
            done, _ = await asyncio.wait(
                {getting, gone}, timeout=_ALIVE_EVERY_S, return_when=asyncio.FIRST_COMPLETED
            )
            if getting not in done:
                getting.cancel()
            if gone in done:
                return
            event = getting.result() if getting in done else ""
            if event is None:
                await request.send({"type": "http.response.body", "body": RETRY})
                return
            body = f"event: {event}\ndata: \n\n".encode() if event else _ALIVE
            await request.send({"type": "http.response.body", "body": body, "more_body": True})

    async def _look(self) -> None:
        seen: dict[str, object] = {}
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        with self._service.keep.record.approvals.watch(lambda _: loop.call_soon_threadsafe(changed.set)):
            while True:
                changed.clear()
                with contextlib.suppress(OSError, ToolkeepError):  # a database that is away comes back
                    now = await asyncio.to_thread(self._state)
                    # At the first look too: what happened since the tab was loaded would stay untold.
                    for name in [name for name in now if now[name] != seen.get(name)]:
                        self._put(name)
                    seen = now
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), LISTEN_SECONDS)
                if self._service.health.is_stopping:
                    self.close()

    def _state(self) -> dict[str, object]:
        """A fingerprint of what tabs show."""
        keep = self._service.keep
        waiting = keep.record.approvals.waiting()
        newest = next(keep.record.log.read_back(), None)
        return {
            "approvals": tuple((one.question.id, one.question.acts_done) for one in waiting),
            "calls": newest.index if newest else -1,
        }

    def _put(self, event: str) -> None:
        for queue, caller in self._queues.items():
            # Even the fact that a call was recorded is only for callers who may read the log.
            if any(map(caller.has_scope, _HEARD_BY[event])) and not queue.full():
                queue.put_nowait(event)


_HEARD_BY: Final = {
    "approvals": (Scope.APPROVE,),
    "calls": (Scope.AUDIT_READ,),
}


async def _until_gone(request: PageRequest) -> None:
    while True:
        event = await request.receive()
        if event["type"] == "http.disconnect":
            return
