"""Streams that a client takes up again where they broke (`Last-Event-ID`, 2025-03-26 to 2025-11-25).

What is sent on the streams of a session is kept for a while, within bounds, and found in that session alone:
the name of an event begins with a mark that no other session has. A call goes on while its client may come
back; if it does not, the call is cancelled.
"""

import asyncio
import re
import secrets
from collections import deque
from collections.abc import Callable
from typing import Final

from toolkeep.limits import MCP_KEPT_BYTES, MCP_KEPT_EVENTS, MCP_RESUME_SECONDS, MCP_SHELF_BYTES
from toolkeep.mcp.stream import Reply

_EVENT: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,9})-([0-9]{1,9})")
PRIMED_VERSION: Final = "2025-11-25"
"""The version whose streams begin with an empty event, so that its client has a name to come back with."""

_NOTHING: Final = b""


class Shelf:
    """How much all sessions of an app keep together."""

    def __init__(self) -> None:
        self.bytes = 0


class Stream:
    """One stream: what is sent goes to whoever listens, and is kept for whoever comes back."""

    def __init__(self, session: "Streams", number: int, abandon: Callable[[], object]) -> None:
        self.number = number
        self.sent = 0
        """The number of the last event."""
        self.kept: deque[tuple[int, bytes]] = deque()
        self.is_over = False
        self._session = session
        self._abandon = abandon
        self._listener: Reply | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_begun(self) -> bool:
        """Whether anything was sent."""
        return self.sent > 0

    def emit(self, frame: bytes) -> None:
        """One message."""
        if self.is_over:
            return
        if frame:
            self.prime()
        self.sent += 1
        self._session.keep(self, frame)
        if self._listener is not None:
            self._send(self._listener, self.sent, frame)

    def prime(self) -> None:
        """Give the client a name to come back with before there is anything to tell."""
        if self._session.is_primed and not self.has_begun:
            self.emit(_NOTHING)

    def finish(self, frame: bytes) -> None:
        """The last message."""
        self.emit(frame)
        self.end()

    def end(self) -> None:
        """Nothing more will come."""
        self.is_over = True
        self._session.forget(self)
        self._stop_timer()
        if self._listener is not None:
            self._listener.end()
            self._listener = None

    def hear(self, reply: Reply) -> None:
        """From now on, this is who listens."""
        self._stop_timer()
        if self._listener is not None and self._listener is not reply:
            self._listener.end()
        self._listener = reply

    def take_up(self, reply: Reply, after: int) -> None:
        """As `hear`, with what was sent after an event."""
        reply.open()
        self.hear(reply)
        for number, frame in self.kept:
            if number > after:
                self._send(reply, number, frame)
        if self.is_over:
            self.end()

    def leave(self, reply: Reply) -> None:
        """The client does not listen any more; it has a while to come back."""
        if self._listener is not reply or self.is_over:
            return
        self._listener = None
        self._timer = asyncio.get_running_loop().call_later(MCP_RESUME_SECONDS, self._abandon)

    def reaches(self, event: int) -> bool:
        """Whether everything that came after an event is still kept."""
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

    def __init__(self, shelf: Shelf, *, is_primed: bool = False) -> None:
        self.mark = secrets.token_hex(8).encode()
        self.is_primed = is_primed
        self._shelf = shelf
        self._streams: dict[int, Stream] = {}
        self._begun = 0
        self._order: deque[Stream] = deque()
        """Whose event was kept, oldest first."""
        self._bytes = 0
        self._is_closed = False

    def begin(self, abandon: Callable[[], object]) -> Stream:
        """A new stream; `abandon` is called when nobody came back to it."""
        self._begun += 1
        return Stream(self, self._begun, abandon)

    def find(self, event: str) -> tuple[Stream, int] | None:
        """The stream of an event, if all that came after the event is still kept."""
        found = _EVENT.fullmatch(event)
        if found is None or found.group(1).encode() != self.mark:
            return None
        stream, number = self._streams.get(int(found.group(2))), int(found.group(3))
        return (stream, number) if stream is not None and stream.reaches(number) else None

    def keep(self, stream: Stream, frame: bytes) -> None:
        """Keep an event, and let the oldest go where there is no room."""
        if self._is_closed:
            return
        self._streams[stream.number] = stream
        stream.kept.append((stream.sent, frame))
        self._order.append(stream)
        self._count(len(frame))
        while self._order and self._is_full():
            self._drop_oldest()

    def forget(self, stream: Stream) -> None:
        """Let a stream go of which nothing is left."""
        if stream.is_over and not stream.kept:
            self._streams.pop(stream.number, None)

    def close(self) -> None:
        """The session is over."""
        self._is_closed = True
        for stream in list(self._streams.values()):
            stream.end()
        while self._order:
            self._drop_oldest()
        self._streams.clear()

    def _is_full(self) -> bool:
        is_full_here = self._bytes > MCP_KEPT_BYTES or len(self._order) > MCP_KEPT_EVENTS
        return is_full_here or self._shelf.bytes > MCP_SHELF_BYTES

    def _drop_oldest(self) -> None:
        stream = self._order.popleft()
        _, frame = stream.kept.popleft()
        self._count(-len(frame))
        self.forget(stream)

    def _count(self, length: int) -> None:
        self._bytes += length
        self._shelf.bytes += length
