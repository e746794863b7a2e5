"""Streams of events: the same events however they are cut, and no end of nothing."""

import itertools
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolkeep.mcp_client import sse
from toolkeep.mcp_client.sse import SseReader
from toolkeep.mcp_client.transport import UpstreamFailed

STREAM = (
    b": a comment\r\nid: e1\r\nretry: 250\r\ndata: one\r\ndata:more\r\n\r\n"
    b"event: message\rdata: two\r\rdata\n\nid: e2\ndata:  three \n\ndata: never whole"
)


def taken(*pieces: bytes) -> tuple[list[bytes], SseReader]:
    reader = SseReader()
    return [data for piece in pieces for data in reader.take(piece)], reader


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
@example([43, 43])  # nothing between CR and LF
def test_events_are_the_same_however_the_stream_is_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[begin:end] for begin, end in itertools.pairwise(places)]
    events, reader = taken(*pieces)
    assert events == [b"one\nmore", b"two", b"three"]
    assert (reader.last_id, reader.retry_ms) == ("e2", 250)


@pytest.mark.parametrize("name", [b"a\tb", b"\xc3\xbc", b"x" * 2_000, b"a\x00b", b" a", b"a "])
def test_an_id_that_no_header_carries_is_none(name: bytes) -> None:
    _, reader = taken(b"id: fine\n\nid: " + name + b"\n\n")
    assert reader.last_id == "fine"


@pytest.mark.parametrize(
    ("said", "waits"), [(b"999999999999", 30_000), (b"0", 0), (b"-5", None), (b"soon", None)]
)
def test_a_server_decides_how_long_to_wait_within_bounds(said: bytes, waits: int | None) -> None:
    assert taken(b"retry: " + said + b"\n\n")[1].retry_ms == waits


@pytest.mark.parametrize("piece", [b"x" * 100, b"data: " + b"y" * 94, b": c\n" * 25, b"data: z\n" * 12])
def test_an_event_without_end_is_refused(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "EVENT_BYTES", 1_000)
    with pytest.raises(UpstreamFailed, match="more than 1000 bytes"):
        taken(*[piece] * 12)


@pytest.mark.parametrize("piece", [b"xy", b"data:xy\n"])
def test_an_event_in_tiny_pieces_takes_the_memory_of_its_bytes(piece: bytes) -> None:
    reader = SseReader()
    tracemalloc.start()
    try:
        for _ in range(50_000):
            assert list(reader.take(bytes(bytearray(piece)))) == []
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * 50_000 * len(piece)


def test_what_a_broken_stream_left_half_said_is_forgotten() -> None:
    reader = SseReader()
    assert list(reader.take(b"id: e1\ndata: half")) == []
    reader.begin()
    assert list(reader.take(b"data: whole\n\n")) == [b"whole"]
    assert reader.last_id == ""
