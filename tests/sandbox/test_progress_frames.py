"""Progress is distrusted: whatever a worker writes into its pipe, the host counts and measures it."""

import asyncio
import contextlib
import json
import os
from collections.abc import Iterable

import pytest

from toolkeep.limits import OUTPUT_PIECES, PROGRESS_AT_ONCE, PROGRESS_BYTES, PROGRESS_FRAMES
from toolkeep.sandbox.frames import frame
from toolkeep.sandbox.tool_exception import Raised, ToolException
from toolkeep.sandbox.worker_exchange import Ending, Exchange, Reply, Request
from toolkeep.sandbox.worker_source import Worker

Told = list[tuple[float, float | None, str]]

GREETING = (b'{"narrowed":true}', b'{"ready":true}')
REPLY = b'{"ok":1}'
STEP = b'{"progress":[1,2,"a"]}'


class Pretender:
    """The host's view of a worker that has written these bodies."""

    def __init__(self, bodies: Iterable[bytes], deadline_s: float = 5.0, output_bytes: int = 1 << 20) -> None:
        self._output_bytes = output_bytes
        self._bodies = b"".join(map(frame, bodies))
        self._deadline_s = deadline_s
        self.told: Told = []
        self.pieces: list[object] = []
        self.turns: list[int] = []
        """How much was told at each turn of the event loop."""

    def ask(self) -> Reply:
        return asyncio.run(self._ask())

    async def _ask(self) -> Reply:
        loop = asyncio.get_running_loop()
        request, reply = os.pipe(), os.pipe()
        for end in (*request, *reply):
            os.set_blocking(end, False)
        worker = Worker(request[1], reply[0], -1, None)  # type: ignore[arg-type]  # it has no zygote
        until = loop.time() + self._deadline_s
        asked = Request(
            b"{}",
            until,
            self._output_bytes,
            lambda *said: self.told.append(said),
            self.pieces.append,
        )
        rest = self._bodies

        def write() -> None:
            nonlocal rest
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                rest = rest[os.write(reply[1], rest) :]
            if not rest:
                loop.remove_writer(reply[1])

        def turn() -> None:
            self.turns.append(len(self.told))
            ticking.append(loop.call_soon(turn))

        ticking: list[asyncio.Handle] = []
        loop.add_writer(reply[1], write)
        turn()
        try:
            return await Exchange(worker, asked, b"").run()
        finally:
            ticking[-1].cancel()
            loop.remove_writer(reply[1])
            for end in (*request, *reply):
                os.close(end)


def test_progress_comes_in_order_before_the_reply() -> None:
    steps = [json.dumps({"progress": [number, None, f"step {number}"]}).encode() for number in range(100)]
    worker = Pretender([*GREETING, *steps, REPLY])
    assert worker.ask() == Reply(Ending.OK, value=1)
    assert worker.told == [(number, None, f"step {number}") for number in range(100)]


@pytest.mark.parametrize(
    "body",
    [
        b'{"progress":[NaN,2,"a"]}',
        b'{"progress":[Infinity,2,"a"]}',
        b'{"progress":[1e999,2,"a"]}',
        b'{"progress":[1,-1e999,"a"]}',
        b'{"progress":[' + b"9" * 400 + b',2,"a"]}',
        b'{"progress":[true,2,"a"]}',
        b'{"progress":[1,false,"a"]}',
        b'{"progress":["1",2,"a"]}',
        b'{"progress":[null,2,"a"]}',
        b'{"progress":[1,[2],"a"]}',
        b'{"progress":[1,2,3]}',
        b'{"progress":[1,2,null]}',
        b'{"progress":[1,2]}',
        b'{"progress":[1,2,"a","b"]}',
        b'{"progress":{"done":1}}',
        b'{"progress":null}',
        b'{"progress":[1,2,"a"],"ok":1}',
        b'{"progress":[1,2,"' + b"a" * PROGRESS_BYTES + b'"]}',
    ],
)
def test_what_is_no_progress_ends_the_call(body: bytes) -> None:
    worker = Pretender([*GREETING, body, REPLY])
    assert (worker.ask().ending, worker.told) == (Ending.BROKEN, [])


@pytest.mark.spec("EXE-8")
def test_pieces_come_in_order_and_the_reply_has_what_it_says() -> None:
    worker = Pretender([*GREETING, b'{"piece":"a"}', STEP, b'{"piece":{"n":1}}', b'{"pieces":["b"]}'])
    assert worker.ask() == Reply(Ending.OK, pieces=["b"])
    assert worker.pieces == ["a", {"n": 1}]


@pytest.mark.parametrize(
    "body",
    [
        b'{"piece":1,"ok":1}',
        b'{"piece":NaN}',
        b'{"pieces":"a"}',
        b'{"pieces":null}',
        b'{"pieces":[1],"ok":1}',
        b'{"piece":' + b"[" * 1000 + b"]" * 1000 + b"}",
    ],
)
def test_what_is_no_piece_ends_the_call(body: bytes) -> None:
    worker = Pretender([*GREETING, body, REPLY])
    assert (worker.ask().ending, worker.pieces) == (Ending.BROKEN, [])


def test_more_pieces_or_bytes_than_a_call_may_give_end_it() -> None:
    worker = Pretender([*GREETING, *[b'{"piece":1}'] * (OUTPUT_PIECES + 1), REPLY])
    assert (worker.ask().ending, len(worker.pieces)) == (Ending.BROKEN, OUTPUT_PIECES)
    long = b'{"piece":"' + b"a" * (1 << 19) + b'"}'
    worker = Pretender([*GREETING, *[long] * 8, REPLY])
    assert worker.ask().ending is Ending.BROKEN
    assert len(worker.pieces) < 8


def test_more_progress_than_a_call_may_tell_ends_it() -> None:
    enough = Pretender([*GREETING, *[STEP] * PROGRESS_FRAMES, REPLY])
    assert (enough.ask().ending, len(enough.told)) == (Ending.OK, PROGRESS_FRAMES)
    worker = Pretender([*GREETING, *[STEP] * (PROGRESS_FRAMES + 1), REPLY])
    assert (worker.ask().ending, len(worker.told)) == (Ending.BROKEN, PROGRESS_FRAMES)


def test_a_flood_lets_others_of_the_event_loop_go_on() -> None:
    worker = Pretender([*GREETING, *[STEP] * PROGRESS_FRAMES, REPLY])
    worker.ask()
    most = max(later - before for before, later in zip(worker.turns, worker.turns[1:], strict=False))
    assert 0 < most <= PROGRESS_AT_ONCE


def test_a_progress_after_the_reply_is_not_told() -> None:
    worker = Pretender([*GREETING, STEP, REPLY, STEP])
    assert (worker.ask().ending, len(worker.told)) == (Ending.OK, 1)


@pytest.mark.parametrize("heard", [0, 1])
def test_a_progress_before_the_tool_is_ready_ends_the_call(heard: int) -> None:
    worker = Pretender([*GREETING[:heard], STEP, *GREETING[heard:], REPLY])
    assert (worker.ask().ending, worker.told) == (Ending.BROKEN, [])


def test_progress_alone_is_no_answer_at_the_deadline() -> None:
    assert Pretender([*GREETING, STEP], deadline_s=0.1).ask() == Reply(Ending.TIMED_OUT)


@pytest.mark.parametrize(("said", "shown"), [("\u202eevil\u200b", "\\u202eevil\\u200b"), ("a\nb", "a\\nb")])
def test_characters_that_deceive_are_shown(said: str, shown: str) -> None:
    worker = Pretender([*GREETING, json.dumps({"progress": [1, None, said]}).encode(), REPLY])
    worker.ask()
    assert worker.told == [(1, None, shown)]


@pytest.mark.parametrize("number", [13, -1, 1 << 80])
def test_an_exception_is_read_as_it_was_told(number: int) -> None:
    """The worker chooses the number: one that no system knows must not end more than its call."""
    told = {"errno": number, "during": "file", "subject": "/a", "chain": [["OSError", "no", ["a.py:1"]]]}
    body = json.dumps({"raised": "OSError", "where": "a.py:1", **told}).encode()
    exception = ToolException((Raised("OSError", "no", ("a.py:1",)),), "file", number, "/a")
    expected = Reply(Ending.RAISED, text="OSError at a.py:1", exception=exception)
    assert Pretender([*GREETING, body]).ask() == expected


@pytest.mark.parametrize(
    "told",
    [
        {"errno": "13"},
        {"errno": True},
        {"during": "dreaming"},
        {"during": ["file"]},
        {"subject": 1},
        {"chain": "all"},
        {"chain": [["OSError", "no"]]},
        {"chain": [["OSError", "no", [1]]]},
        {"more": 1},
    ],
)
def test_what_is_no_exception_is_no_answer(told: dict[str, object]) -> None:
    body = json.dumps({"raised": "OSError", "where": "a.py:1", **told}).encode()
    assert Pretender([*GREETING, body]).ask().ending is Ending.BROKEN


def test_of_an_exception_no_more_is_kept_than_is_shown() -> None:
    one = ["E" * 999, "t" * 9999, ["p" * 999] * 99]
    body = json.dumps({"raised": "E", "where": "x", "chain": [one] * 9, "subject": "s" * 9999}).encode()
    exception = Pretender([*GREETING, body]).ask().exception
    assert exception is not None
    assert len(exception.subject) == 4096
    assert len(exception.traceback(has_texts=True)) < 30_000
