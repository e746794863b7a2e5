"""Incremental parser for server-sent events (SSE): bytes in, events out, bounded.

The server is hostile: an endless line, event or stream is refused before it fills memory.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Final

from toolkeep.limits import OUTPUT_CAP_BYTES
from toolkeep.mcp_client.transport import UpstreamFailed

EVENTS: Final = 5_000
"""Maximum number of events of one request; a tool may report progress a thousand times."""
EVENT_BYTES: Final = OUTPUT_CAP_BYTES
ID_CHARS: Final = 1_024
"""Maximum length of an event id, which is sent back in the header `Last-Event-ID`."""
RETRY_MILLISECONDS: Final = 30_000
"""Upper bound of the server's `retry` (reconnect backoff)."""


class SseReader:
    """SSE parser; keeps the last event id over reconnects."""

    def __init__(self) -> None:
        self.last_id = ""
        """Last event id; empty if the stream cannot be resumed."""
        self.retry_ms: int | None = None
        """Reconnect delay from `retry`, if the server sent one."""
        self._left = EVENTS
        self.begin()

    def begin(self) -> None:
        """Start another stream of the same request; drops a partial event."""
        self._line = bytearray()
        self._data = bytearray()
        self._held = 0
        self._id = ""
        self._is_after_return = False

    def take(self, piece: bytes) -> Iterator[bytes]:
        """Feed bytes; yields the data of completed events. Raises `UpstreamFailed`."""
        if not piece:
            return
        first, *more = self._split(piece)
        self._held += len(piece)
        # Counts unfinished data too, so that an event without end is refused early.
        if self._held > EVENT_BYTES:
            raise UpstreamFailed(f"it sent an event of more than {EVENT_BYTES} bytes")
        self._line += first
        for begun in more:
            line, self._line = bytes(self._line), bytearray(begun)
            yield from self._understand(line)

    def _split(self, piece: bytes) -> list[bytes]:
        """Split lines at CR, LF or CRLF; CRLF may be split over two reads."""
        if self._is_after_return and piece[:1] == b"\n":
            piece = piece[1:]
        self._is_after_return = piece.endswith(b"\r")
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")

    def _understand(self, line: bytes) -> Iterator[bytes]:
        if not line:
            yield from self._end()
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data += value + b"\n"
        elif field == b"id":
            self._id = _for_header(value)
        elif field == b"retry" and value.isdigit():
            # Nine digits at most: a million digits would take long to convert.
            self.retry_ms = min(int(value[:9]), RETRY_MILLISECONDS)

    def _end(self) -> Iterator[bytes]:
        data, self._data, self._held = bytes(self._data).strip(), bytearray(), 0
        self._left -= 1
        if self._left < 0:
            raise UpstreamFailed(f"it sent more than {EVENTS} events")
        self.last_id = self._id or self.last_id
        if data:
            yield data


def _for_header(value: bytes) -> str:
    """An event id; empty if it is no valid header value (header injection)."""
    text = value.decode("latin-1")
    is_fit = len(text) <= ID_CHARS and text.isascii() and text.isprintable() and text == text.strip()
    return text if is_fit else ""


async def events_of(pieces: AsyncIterator[bytes], reader: SseReader) -> AsyncGenerator[bytes]:
    """Data of each event, as soon as it is complete."""
    async for piece in pieces:
        for data in reader.take(piece):
            yield data
