"""A stream of server-sent events, taken apart as it comes: bytes in, events out, within bounds.

The server is hostile: a line, an event or a stream without end is refused before it fills memory.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Final

from toolkeep.limits import OUTPUT_CAP_BYTES
from toolkeep.sources.mcp.speaking import UpstreamFailed

EVENTS: Final = 5_000
"""Events of one request; a tool may tell progress a thousand times."""
EVENT_BYTES: Final = OUTPUT_CAP_BYTES
ID_CHARS: Final = 1_024
"""Of the id of an event, which goes into a header when a stream is taken up again."""
RETRY_MILLISECONDS: Final = 30_000
"""The longest wait that a server may ask for before its stream is taken up again."""


class EventReader:
    """Takes pieces of one stream after the other, and gives the data of the events that are whole."""

    def __init__(self) -> None:
        self.last_id = ""
        """Of the last event that had one; empty where a stream cannot be taken up again."""
        self.retry_ms: int | None = None
        """How long to wait before that, where the server said so."""
        self._left = EVENTS
        self.begin()

    def begin(self) -> None:
        """Another stream of the same request: what the one before left half said is forgotten."""
        self._line = bytearray()
        self._data = bytearray()
        self._held = 0
        self._id = ""
        self._is_after_return = False

    def take(self, piece: bytes) -> Iterator[bytes]:
        """The events that this piece makes whole. Raises `UpstreamFailed`."""
        if not piece:
            return
        first, *more = self._split(piece)
        self._held += len(piece)
        if self._held > EVENT_BYTES:
            raise UpstreamFailed(f"it sent an event of more than {EVENT_BYTES} bytes")
        self._line += first
        for begun in more:
            line, self._line = bytes(self._line), bytearray(begun)
            yield from self._understand(line)

    def _split(self, piece: bytes) -> list[bytes]:
        """Lines end with CR, LF or both, and the two may come in two pieces."""
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
    """The id of an event; empty where it cannot be said back in a header."""
    text = value.decode("latin-1")
    is_fit = len(text) <= ID_CHARS and text.isascii() and text.isprintable() and text == text.strip()
    return text if is_fit else ""


async def events_of(pieces: AsyncIterator[bytes], reader: EventReader) -> AsyncGenerator[bytes]:
    """The data of each event, as soon as it is whole."""
    async for piece in pieces:
        for data in reader.take(piece):
            yield data
