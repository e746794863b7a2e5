"""Entries: their line, and what is not one."""

import hashlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.audit.entry import NO_PREVIOUS, Entry, chain, follow, parse_entry, record_bytes
from toolkeep.json_values.canonical import canonical_bytes

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
RECORDS = st.dictionaries(st.text(), JSON, max_size=6)


@given(RECORDS)
def test_a_record_is_written_in_canonical_form(record: dict[str, Any]) -> None:
    assert record_bytes(record) == canonical_bytes(record)


@given(st.lists(RECORDS, max_size=5), st.integers(0, 2**40))
def test_lines_are_the_canonical_form_of_their_entries_and_hash_as_leaves(
    records: list[dict[str, Any]], index: int
) -> None:
    lines, leaves = chain([record_bytes(record) for record in records], index, NO_PREVIOUS)
    entries = [parse_entry(line) for line in lines]
    assert [entry and entry.line for entry in entries] == lines
    assert [entry and entry.index for entry in entries] == list(range(index, index + len(records)))
    assert leaves == [hashlib.sha256(b"\0" + line).digest() for line in lines]
    assert list(follow(lines, index, NO_PREVIOUS)) == leaves


def test_following_stops_at_the_first_line_that_does_not_follow() -> None:
    lines, leaves = chain([b"{}"] * 4, 0, NO_PREVIOUS)
    for wrong in (lines[2], lines[0], lines[1][:-1], b" " + lines[1], b""):
        followed = follow([lines[0], wrong, lines[2]], 0, NO_PREVIOUS)
        assert list(followed) == leaves[:1]


def test_keys_are_sorted_as_the_standard_says_where_encodings_differ() -> None:
    record = {"\ufb33": "a", "\U0001f600": "b"}
    assert record_bytes(record) == canonical_bytes(record) == '{"\U0001f600":"b","\ufb33":"a"}'.encode()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b'{"index":0,"previous":"%b","record":{}}\r' % NO_PREVIOUS.encode(),
        b'{"index":0, "previous":"%b","record":{}}' % NO_PREVIOUS.encode(),
        b'{"previous":"%b","index":0,"record":{}}' % NO_PREVIOUS.encode(),
        b'{"index":0,"index":0,"previous":"%b","record":{}}' % NO_PREVIOUS.encode(),
        b'{"index":-1,"previous":"%b","record":{}}' % NO_PREVIOUS.encode(),
        b'{"index":true,"previous":"%b","record":{}}' % NO_PREVIOUS.encode(),
        b'{"index":0,"previous":"00","record":{}}',
        b'{"index":0,"previous":"%b","record":[]}' % NO_PREVIOUS.encode(),
        b'{"index":0,"previous":"%b","record":{"a":1.0}}' % NO_PREVIOUS.encode(),
        b'{"index":0,"previous":"%b","record":{"\\u0061":1}}' % NO_PREVIOUS.encode(),
        b'{"index":0,"previous":"%b","record":{}}\0' % NO_PREVIOUS.encode(),
        b'{"index":0,"previous":"%b","record":{"a":"\xff"}}' % NO_PREVIOUS.encode(),
        b'{"index":0,"previous":"%b","record":%b}'
        % (NO_PREVIOUS.encode(), b'{"a":' * 2000 + b"1" + b"}" * 2000),
    ],
)
def test_a_line_that_is_not_the_one_form_of_an_entry_is_none(line: bytes) -> None:
    assert parse_entry(line) is None


def test_large_integers_keep_their_digits() -> None:
    entry = Entry(index=0, previous=NO_PREVIOUS, record={"large": 2**100 + 1})
    assert parse_entry(entry.line) == entry


@pytest.mark.parametrize(
    "record", [{"a": math.nan}, {1: "a"}, {"a": {1, 2}}, {"a": b"bytes"}, {"a": "\ud800"}]
)
def test_what_is_not_json_is_no_record(record: dict[Any, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        record_bytes(record)
