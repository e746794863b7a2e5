"""Replies are weighed before they are parsed."""

import asyncio
import json
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.limits import LARGE_ANSWER_BYTES
from toolkeep.sandbox import frames
from toolkeep.sandbox.frames import FrameRefused, _outside_strings, frame, parse, parse_unambiguous

PLAIN = st.recursive(st.none() | st.integers() | st.text(max_size=8), st.lists, max_leaves=12)


@given(st.dictionaries(st.text(max_size=8), PLAIN, max_size=3))
def test_json_comes_through_as_it_is(value: dict[str, Any]) -> None:
    assert parse(json.dumps(value).encode()) == value
    assert parse(json.dumps(value, ensure_ascii=False).encode()) == value


VALUES = st.recursive(
    st.none()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet='[]{},:"\\ a', max_size=8),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet=':{}"\\a', max_size=4), inner),
    max_leaves=12,
)


@given(st.dictionaries(st.text(alphabet=':{}"\\a', max_size=4), VALUES, max_size=3), st.booleans())
def test_an_object_with_each_key_once_is_as_it_is(value: dict[str, Any], is_ascii: bool) -> None:
    assert parse_unambiguous(json.dumps(value, ensure_ascii=is_ascii).encode()) == value


@pytest.mark.parametrize(
    "body",
    [
        '{"a": 1, "a": 2}',
        '{"a": 1, "a": 1}',
        r'{"a": 1, "\u0061": 2}',
        '{"r": [{"": {}, "": {}}]}',
        '{"r": {"a": {"b": 1, "c": 2}, "a": 1}, "s": ":"}',
    ],
)
def test_a_key_that_stands_twice_is_refused_where_that_matters(body: str) -> None:
    assert parse(body.encode())
    with pytest.raises(FrameRefused, match="a key appears twice"):
        parse_unambiguous(body.encode())


@given(st.lists(st.text(alphabet='[]{},:"\\ a')))
def test_what_stands_in_strings_is_left_out(texts: list[str]) -> None:
    outside = _outside_strings(json.dumps(texts, separators=(",", ":")).encode())
    assert outside == b"[" + b"," * max(len(texts) - 1, 0) + b"]"


@given(st.lists(st.text(alphabet='[]{},:"\\ a')), st.integers(2, 7))
def test_it_does_not_matter_where_a_portion_ends(texts: list[str], size: int) -> None:
    body = json.dumps(texts).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_PORTION_BYTES", size)
        in_portions = _outside_strings(body)
    assert in_portions == _outside_strings(body)


def test_every_portion_is_small_and_a_backslash_alone_ends() -> None:
    """A portion that is put off for its backslash comes again, and would come again for ever."""
    body = b"a" * (2 << 20) + b"\\"
    portions = list(islice(frames._portions(body), 10))
    assert (b"".join(portions), max(map(len, portions))) == (body, 1 << 20)
    assert list(islice(frames._portions(b"a\\"), 10)) == [b"a", b"\\"]


@pytest.mark.parametrize("inside", [b"1,", b"[],", b'"",', b'"":"",', b"\\n"])
def test_weighing_ends_where_it_is_too_much(inside: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands outside strings is collected: of a hundred megabytes it would be as much."""
    weighed: list[int] = []

    def noted(body: frames.Buffer) -> Iterator[bytes]:
        for portion in portions(body):
            weighed.append(len(portion))
            yield portion

    portions = frames._portions
    monkeypatch.setattr(frames, "_portions", noted)
    with pytest.raises(FrameRefused):
        frames.check_limits(b"[" + inside * ((32 << 20) // len(inside)))
    assert sum(weighed) <= 16 << 20


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
def test_what_is_too_much_is_refused_before_it_is_parsed(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[Any] = []
    monkeypatch.setattr(frames, "read_strict", parsed.append)
    for inside in (b"1," * 1_000_001, b"[]," * 100_001, b'"",' * 1_000_001, b"[" * 501):
        with pytest.raises(FrameRefused):
            parse(form(b'{"ok":[' + inside + b"1]}"))
    assert parsed == []


@pytest.mark.parametrize(("size", "is_aside"), [(LARGE_ANSWER_BYTES, False), (LARGE_ANSWER_BYTES + 1, True)])
def test_what_is_large_is_worked_on_by_a_thread(size: int, *, is_aside: bool) -> None:
    worked = asyncio.run(frames.in_thread_if_large(size, threading.current_thread))
    assert (worked is not threading.current_thread()) is is_aside


def test_a_long_text_may_hold_any_number_of_brackets() -> None:
    value = {"ok": '[{,:"\\' * 200_000}
    assert parse(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        b'{"ok":[' + b"[]," * 200_000 + b"1]}",
        b'{"ok":[' + b"1," * 1_000_001 + b"1]}",
        b'{"ok":[' + b'"",' * 1_000_001 + b"1]}",
        b'{"ok":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"ok":' + b'{"]":"]","a":' * 510 + b"0" + b"}" * 511,
        b'{"ok":"' + rb"\n" * 5_000_001 + b'"}',
        rb'{"ok":"\ud800"}',
        b'{"ok":1e999}',
        b'{"ok":Infinity}',
        b'{"ok":' + b"9" * 5_000 + b"}",
        b"\xff\xfe{\x00}\x00",
        b"",
        b"3",
    ],
)
def test_a_body_that_is_too_much_or_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(FrameRefused):
        parse(body)


def test_many_brackets_side_by_side_are_not_deep() -> None:
    value = {"ok": [{"a": [{}, [], "]"]} for _ in range(5_000)]}
    assert parse(json.dumps(value).encode()) == value


def test_a_frame_is_its_length_and_its_body() -> None:
    assert frame(b"{}") == b"\x00\x00\x00\x02{}"
