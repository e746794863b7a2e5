"""Tools that yield their output: heard piece by piece, checked and hashed as one (EXE-8)."""

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from toolkeep import Code, Keep, ToolContext, ToolResult, tool
from toolkeep.execution import streamed_output
from toolkeep.stores.records import MemoryLog

pytestmark = pytest.mark.spec("EXE-8")

NONE: dict[str, Any] = {"side_effects": ["None"]}


@tool(**NONE)
def lines(to: int) -> Iterator[str]:
    """Some lines."""
    for number in range(to):
        yield f"{number}\n"


@tool(**NONE)
async def lines_soon(to: int) -> AsyncIterator[str]:
    """Some lines."""
    for number in range(to):
        yield f"{number}\n"


@tool(**NONE)
def rows(to: int) -> Iterator[dict[str, int]]:
    """Some rows."""
    row = {"n": 0}
    for number in range(to):
        row["n"] = number
        yield row  # the same one each time


@tool(result_type="array", **NONE)
def words() -> Iterator[str]:
    """Words that stay apart."""
    yield from ("a", "b")


@tool(result_type="array", **NONE)
def no_words() -> Iterator[str]:
    """No words."""
    yield from ()


@tool(output_schema={"type": "array", "maxItems": 1}, **NONE)
def too_many() -> Iterator[int]:
    """More than it says."""
    yield from (1, 2)


@tool(result_type="binary", normalization="binary", **NONE)
def raw() -> Iterator[bytes]:
    """Bytes."""
    yield from (b"a", b"\xff")


@tool(**NONE)
def odd() -> Iterator[object]:
    """Something, then no JSON."""
    yield "fine"
    yield {1, 2}


@tool(**NONE)
def breaks() -> Iterator[str]:
    """Something, then an exception."""
    yield "fine"
    raise KeyError("a secret value")


TOOLS = (lines, lines_soon, rows, words, no_words, too_many, raw, odd, breaks)


@pytest.fixture
def keep() -> Iterator[Keep]:
    with Keep() as keep:
        keep.register(*TOOLS)
        yield keep


def heard(
    keep: Keep, name: str, arguments: dict[str, Any] | None = None, **options: Any
) -> tuple[ToolResult, list[Any]]:
    told: list[Any] = []
    return keep.call_sync(name, arguments or {}, on_output=told.append, **options), told


@pytest.mark.parametrize("name", ["lines", "lines_soon"])
def test_text_is_heard_as_it_comes_and_joined(keep: Keep, name: str) -> None:
    result, told = heard(keep, name, {"to": 3})
    assert (result.value, told) == ("0\n1\n2\n", ["0\n", "1\n", "2\n"])
    assert result.hash == hashlib.sha256(b'"0\\n1\\n2\\n"').hexdigest()


@pytest.mark.parametrize(
    ("name", "arguments", "value"),
    [
        ("rows", {"to": 2}, [{"n": 0}, {"n": 1}]),
        ("words", {}, ["a", "b"]),
        ("no_words", {}, []),
        ("lines", {"to": 0}, ""),
        ("raw", {}, b"a\xff"),
    ],
)
def test_the_output_is_all_pieces_together(
    keep: Keep, name: str, arguments: dict[str, Any], value: object
) -> None:
    result, told = heard(keep, name, arguments)
    assert result.value == value
    assert told == ([] if isinstance(value, (bytes, str)) else value)


def test_the_output_schema_is_about_the_whole(keep: Keep) -> None:
    assert heard(keep, "too_many")[0].code is Code.OUTPUT_INVALID


@pytest.mark.parametrize(("name", "code"), [("odd", Code.OUTPUT_INVALID), ("breaks", Code.TOOL_FAILED)])
def test_a_tool_that_fails_half_way_has_no_output(keep: Keep, name: str, code: Code) -> None:
    result, told = heard(keep, name)
    assert (result.code, result.value, told) == (code, None, ["fine"])
    assert "secret" not in result.text


@pytest.mark.spec("AUD-3")
@pytest.mark.parametrize("name", ["lines", "lines_soon"])
def test_nothing_is_heard_of_a_call_that_is_not_in_the_log(keep: Keep, name: str) -> None:
    log = keep.record.log
    assert isinstance(log, MemoryLog)
    kinds: list[list[str]] = []

    def look(_: object) -> None:
        kinds.append([entry.record["type"] for entry in log.entries])

    assert keep.call_sync(name, {"to": 1}, on_output=look).ok
    beginning = ["ToolInvoked", "CapabilityCheck", "PolicyDecision"]
    assert kinds == [beginning]
    assert [entry.record["type"] for entry in log.entries] == [*beginning, "ToolCompleted"]


def test_nobody_need_listen_and_one_who_fails_does_not_fail_the_tool(keep: Keep) -> None:
    def fails(_: object) -> None:
        raise KeyError

    for name in ("lines", "lines_soon"):
        assert keep.call_sync(name, {"to": 2}).value == "0\n1\n"
        assert keep.call_sync(name, {"to": 2}, on_output=fails).value == "0\n1\n"


def test_no_more_is_heard_than_the_caller_gets(keep: Keep) -> None:
    result, told = heard(keep, "lines", {"to": 1000}, max_output_bytes=1024)
    assert result.truncation is not None
    assert 0 < len("".join(told)) <= 1024


def test_pieces_without_end_are_refused(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed_output, "OUTPUT_PIECES", 2)
    assert heard(keep, "lines", {"to": 4})[1] == ["0\n", "1\n"]
    monkeypatch.setattr(streamed_output, "OUTPUT_PIECES_MOST", 3)
    for name in ("lines", "lines_soon"):
        assert heard(keep, name, {"to": 3})[0].ok
        assert heard(keep, name, {"to": 4})[0].code is Code.OUTPUT_TOO_BIG
    monkeypatch.setattr(streamed_output, "OUTPUT_CAP_BYTES", 8)
    assert heard(keep, "lines", {"to": 3})[0].code is Code.OUTPUT_TOO_BIG


@pytest.mark.parametrize("is_async", [False, True])
def test_a_generator_that_never_ends_is_closed_at_the_deadline(is_async: bool) -> None:
    closed = threading.Event()

    @tool(name="endless", **NONE)
    def endless() -> Iterator[str]:
        """On and on."""
        try:
            while True:
                yield ""
        finally:
            closed.set()

    @tool(name="endless", **NONE)
    async def endless_soon() -> AsyncIterator[str]:
        """On and on."""
        try:
            while True:
                yield ""
        finally:
            closed.set()

    with Keep() as keep:
        keep.register(endless_soon if is_async else endless)
        result = asyncio.run(keep.call("endless", {}, timeout_s=0.02))
        assert (result.code, "still runs" in result.text) == (Code.TIMED_OUT, False)
        assert closed.is_set()


def test_a_generator_may_take_its_context() -> None:
    @tool(**NONE)
    def who(context: ToolContext) -> Iterator[str]:
        """Who calls."""
        yield context.agent

    with Keep() as keep:
        keep.register(who)
        assert heard(keep, "who")[1] == ["local"]
