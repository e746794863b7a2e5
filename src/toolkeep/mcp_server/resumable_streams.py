"""SSE streams that a client can resume (`Last-Event-ID`, 2025-03-26 to 2025-11-25).

Events of a session are buffered for a while, within limits, and can be replayed in that session only: event
ids start with a random mark of the session. A call continues while its client may come back, and is cancelled
if the client does not.
"""

import asyncio
import re
import secrets
from collections import deque
from collections.abc import Callable
from typing import Final

from toolkeep.limits import MCP_KEPT_BYTES, MCP_KEPT_EVENTS, MCP_REPLAY_BYTES, MCP_RESUME_SECONDS
from toolkeep.mcp_server.http_response import Reply

_EVENT: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,9})-([0-9]{1,9})")
PRIMED_VERSION: Final = "2025-11-25"
"""The version whose streams begin with an empty event, so that the client has an id to resume from."""

_NOTHING: Final = b""


class ReplayBuffer:
    """The number of bytes that all sessions of an app buffer together."""

    def __init__(self) -> None:
        self.bytes = 0


class Stream:
    """One stream: events go to the current listener and to the replay buffer."""

    def __init__(self, session: "Streams", number: int, abandon: Callable[[], object]) -> None:
        self.number = number
        self.sent = 0
        """Number of the last event."""
        self.kept: deque[tuple[int, bytes]] = deque()
        self.is_over = False
        self._session = session
        self._abandon = abandon
        self._listener: Reply | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_begun(self) -> bool:
        """Whether an event was sent."""
        return self.sent > 0

    def emit(self, frame: bytes) -> None:
        """Send one message."""
        if self.is_over:
            return
        if frame:
            self.prime()
        self.sent += 1
        self._session.keep(self, frame)
        if self._listener is not None:
            self._send(self._listener, self.sent, frame)

    def prime(self) -> None:
        """Send an empty event with an id, so that the client can resume before the first message."""
        if self._session.is_primed and not self.has_begun:
            self.emit(_NOTHING)

    def finish(self, frame: bytes) -> None:
        """Send the last message."""
        self.emit(frame)
        self.end()

    def end(self) -> None:
        """Close the stream."""
        self.is_over = True
        self._session.forget(self)
        self._stop_timer()
        if self._listener is not None:
            self._listener.end()
            self._listener = None

    def attach(self, reply: Reply) -> None:
        """Set the current listener; an earlier one is closed."""
        self._stop_timer()
        if self._listener is not None and self._listener is not reply:
            self._listener.end()
        self._listener = reply

    def resume(self, reply: Reply, after: int) -> None:
        """Replay the events after a number, then continue as `attach`."""
        reply.open()
        self.attach(reply)
        for number, frame in self.kept:
            if number > after:
                self._send(reply, number, frame)
        if self.is_over:
            self.end()

    def detach(self, reply: Reply) -> None:
        """The listener disconnected; the client may resume for `MCP_RESUME_SECONDS`."""
        if self._listener is not reply or self.is_over:
            return
        self._listener = None
        self._timer = asyncio.get_running_loop().call_later(MCP_RESUME_SECONDS, self._abandon)

    def reaches(self, event: int) -> bool:
        """Whether every event after a number is still buffered."""
        first = self.kept[0][0] if self.kept else self.sent + 1
        return first - 1 <= event <= self.sent

    def _send(self, reply: Reply, number: int, frame: bytes) -> None:
        reply.emit(frame, name=b"%b-%d-%d" % (self._session.mark, self.number, number))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Streams:
    """The streams of one session."""

    def __init__(self, replay_buffer: ReplayBuffer, *, is_primed: bool = False) -> None:
        # Event ids of one session mean nothing in another: a client cannot replay the answers of a different
        # session.
        self.mark = secrets.token_hex(8).encode()
        self.is_primed = is_primed
        self._replay_buffer = replay_buffer
        self._streams: dict[int, Stream] = {}
        self._begun = 0
        self._order: deque[Stream] = deque()
        """Streams of the buffered events, oldest event first."""
        self._bytes = 0
        self._is_closed = False

    def begin(self, abandon: Callable[[], object]) -> Stream:
        """Create a stream; `abandon` is called if the client does not resume it in time."""
        self._begun += 1
        return Stream(self, self._begun, abandon)

    def find(self, event: str) -> tuple[Stream, int] | None:
        """The stream of an event id, if every later event is still buffered."""
        found = _EVENT.fullmatch(event)
        if found is None or found.group(1).encode() != self.mark:
            return None
        stream, number = self._streams.get(int(found.group(2))), int(found.group(3))
        return (stream, number) if stream is not None and stream.reaches(number) else None

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
        _, frame = stream.kept.popleft()
        self._count(-len(frame))
        self.forget(stream)

    def _count(self, length: int) -> None:
        self._bytes += length
        self._replay_buffer.bytes += length
