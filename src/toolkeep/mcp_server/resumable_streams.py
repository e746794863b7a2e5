"""SSE streams that a client can resume (`Last-Event-ID`, 2025-03-26 to 2025-11-25).

Events of a session are buffered for a while, within limits, and can be replayed in that session only: event
ids start with a random mark of the session. A call continues while its client may come back, and is cancelled
if the client does not. Where servers share a database, an event is stored there before it is sent, and a
client can resume on any of them.
"""

import asyncio
import re
import secrets
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from toolkeep.limits import MCP_KEPT_BYTES, MCP_KEPT_EVENTS, MCP_REPLAY_BYTES, MCP_RESUME_SECONDS
from toolkeep.mcp_protocol.jsonrpc import Id
from toolkeep.mcp_server.http_response import Reply

_EVENT: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,9})-([0-9]{1,9})")
PRIMED_VERSION: Final = "2025-11-25"
"""The version whose streams begin with an empty event, so that the client has an id to resume from."""

_NOTHING: Final = b""


class StreamLog(Protocol):
    """Where the events of a session are stored, so that other servers can replay them."""

    def append(self, stream: "Stream", frame: bytes, *, is_last: bool) -> "asyncio.Future[bool]":
        """Store the newest event of a stream; False if another server has closed the stream."""

    def drop(self, stream: "Stream", number: int) -> None:
        """Delete an event."""


class ReplayBuffer:
    """The number of bytes that all sessions of an app buffer together."""

    def __init__(self) -> None:
        self.bytes = 0


class Stream:
    """One stream: events go to the current listener and to the replay buffer."""

    def __init__(
        self, session: "Streams", number: int, abandon: Callable[[], object], request: Id | None = None
    ) -> None:
        self.number = number
        self.request = request
        """The request that it answers; None if it answers none."""
        self.sent = 0
        """Number of the last event."""
        self.kept: deque[tuple[int, bytes]] = deque()
        self.is_over = False
        self.is_followed = False
        """Whether another server passes its events on."""
        self._passed_on = 0
        """Number of the last event that the listener got."""
        self._session = session
        self._abandon = abandon
        self._listener: Reply | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_begun(self) -> bool:
        """Whether an event was sent."""
        return self.sent > 0

    @property
    def name(self) -> str:
        """The beginning of its event ids."""
        return f"{self._session.mark.decode()}-{self.number}"

    def emit(self, frame: bytes, *, is_last: bool = False) -> None:
        """Send one message."""
        if self.is_over:
            return
        if frame:
            self.prime()
        self.sent += 1
        self._session.keep(self, frame)
        if self._session.log is None:
            self._pass_on(self.sent, frame)
        else:
            stored = self._session.log.append(self, frame, is_last=is_last)
            stored.add_done_callback(partial(self._stored, self.sent, frame, is_last))

    def prime(self) -> None:
        """Send an empty event with an id, so that the client can resume before the first message."""
        if self._session.is_primed and not self.has_begun:
            self.emit(_NOTHING)

    def finish(self, frame: bytes) -> None:
        """Send the last message."""
        self.emit(frame, is_last=True)
        if self._session.log is None:
            self.end()
        else:  # the listener gets it once it is stored
            self._end_events()

    def end(self) -> None:
        """Close the stream."""
        self._end_events()
        self._let_go()

    def _end_events(self) -> None:
        self.is_over = True
        self._session.forget(self)
        self._stop_timer()

    def _let_go(self) -> None:
        if self._listener is not None:
            self._listener.end()
            self._listener = None

    def attach(self, reply: Reply) -> None:
        """Set the current listener; an earlier one is closed."""
        self._stop_timer()
        if self._listener is not reply:
            self._let_go()
        self._listener = reply

    def resume(self, reply: Reply, after: int) -> None:
        """Replay the events after a number, then continue as `attach`."""
        reply.open()
        self.attach(reply)
        self._passed_on = after
        for number, frame in self.kept:
            self._pass_on(number, frame)
        if self.is_over:
            self.end()

    def followed(self) -> None:
        """Another server passes the events on; it says so again and again while its client is there."""
        self.is_followed = True
        if not self.is_over:
            self._stop_timer()
            self._let_go()
            self._await_return()

    def detach(self, reply: Reply) -> None:
        """The listener disconnected; the client may resume for `MCP_RESUME_SECONDS`."""
        if self._listener is not reply or self.is_over:
            return
        self._listener = None
        self._await_return()

    def reaches(self, event: int) -> bool:
        """Whether every event after a number is still buffered."""
        first = self.kept[0][0] if self.kept else self.sent + 1
        return first - 1 <= event <= self.sent

    def _stored(self, number: int, frame: bytes, is_last: bool, stored: "asyncio.Future[bool]") -> None:  # noqa: FBT001 -- a callback
        # Without the database the client gets its events all the same; only their replay is lost.
        is_ours = not stored.cancelled() and (stored.exception() is not None or stored.result())
        if is_ours:
            self._pass_on(number, frame)
        else:  # another server has told the client that the outcome is unknown
            self._end_events()
        if is_last or not is_ours:
            self._let_go()

    def _pass_on(self, number: int, frame: bytes) -> None:
        if self._listener is not None and number > self._passed_on:
            self._passed_on = number
            self._listener.emit(frame, name=b"%b-%d-%d" % (self._session.mark, self.number, number))

    def _await_return(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(MCP_RESUME_SECONDS, self._abandon)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def split_event(event: str) -> tuple[str, int]:
    """The stream and the number of an event id; empty if it is none of ours."""
    found = _EVENT.fullmatch(event)
    return (f"{found.group(1)}-{found.group(2)}", int(found.group(3))) if found else ("", 0)


class Streams:
    """The streams of one session."""

    def __init__(
        self, replay_buffer: ReplayBuffer, *, is_primed: bool = False, log: StreamLog | None = None
    ) -> None:
        """`log` is where other servers find the events."""
        # Event ids of one session mean nothing in another: a client cannot replay the answers of a different
        # session.
        self.mark = secrets.token_hex(8).encode()
        self.is_primed = is_primed
        self.log = log
        self._replay_buffer = replay_buffer
        self._streams: dict[int, Stream] = {}
        self._begun = 0
        self._order: deque[Stream] = deque()
        """Streams of the buffered events, oldest event first."""
        self._bytes = 0
        self._is_closed = False

    def begin(self, abandon: Callable[[], object], request: Id | None = None) -> Stream:
        """Create a stream; `abandon` is called if the client does not resume it in time."""
        self._begun += 1
        return Stream(self, self._begun, abandon, request)

    def find(self, event: str) -> tuple[Stream, int] | None:
        """The stream of an event id, if every later event is still buffered."""
        name, number = split_event(event)
        stream = self.named(name)
        return (stream, number) if stream is not None and stream.reaches(number) else None

    def named(self, name: str) -> Stream | None:
        """The stream whose event ids begin so."""
        mark, _, number = name.partition("-")
        return self._streams.get(int(number)) if mark.encode() == self.mark else None

    def keep(self, stream: Stream, frame: bytes) -> None:
        """Buffer an event; the oldest events are dropped beyond the limits."""
        if self._is_closed:
            return
        self._streams[stream.number] = stream
        stream.kept.append((stream.sent, frame))
        self._order.append(stream)
        self._count(len(frame))
        while self._order and self._is_full():
            self._drop_oldest()

    def forget(self, stream: Stream) -> None:
        """Drop a finished stream that has no buffered events."""
        if stream.is_over and not stream.kept:
            self._streams.pop(stream.number, None)

    def close(self) -> None:
        """The session has ended: close its streams and drop its buffers."""
        self._is_closed = True
        for stream in list(self._streams.values()):
            stream.end()
        while self._order:
            self._drop_oldest()
        self._streams.clear()

    def _is_full(self) -> bool:
        is_full_here = self._bytes > MCP_KEPT_BYTES or len(self._order) > MCP_KEPT_EVENTS
        return is_full_here or self._replay_buffer.bytes > MCP_REPLAY_BYTES

    def _drop_oldest(self) -> None:
        stream = self._order.popleft()
        number, frame = stream.kept.popleft()
        if self.log is not None:
            self.log.drop(stream, number)
        self._count(-len(frame))
        self.forget(stream)

    def _count(self, length: int) -> None:
        self._bytes += length
        self._replay_buffer.bytes += length
