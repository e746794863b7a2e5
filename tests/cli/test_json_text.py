"""One member of a JSON object is changed in its text; every other character stays as somebody wrote it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.cli.json_text import with_member, without_member

PATH = ("servers", "keep")

_NAMES = st.text(max_size=8)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | _NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)
_FILES = st.dictionaries(_NAMES.filter(lambda name: name != "servers"), _VALUES, max_size=3)
_STYLES = st.sampled_from([None, 0, 1, 4, "\t"])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{\n  "servers": {\n    "keep": 1\n  }\n}'),
        (" { } \n", ' {\n  "servers": {\n   "keep": 1\n  }\n } \n'),
        ('{"servers": {"a": [1, 2]}}', '{"servers": {"a": [1, 2], "keep": 1}}'),
        ('{"servers":{"keep":{"x":2},"b":0}}', '{"servers":{"keep":1,"b":0}}'),
        ('{\n\t"servers": {},\n\t"b": 1.50\n}', '{\n\t"servers": {\n\t\t"keep": 1\n\t},\n\t"b": 1.50\n}'),
        (
            '{\r\n  "\\u0061": 1e5\r\n}\r\n',
            '{\r\n  "\\u0061": 1e5,\r\n  "servers": {\r\n    "keep": 1\r\n  }\r\n}\r\n',
        ),
        ('{"a": "{\\"servers\\": {"}', '{"a": "{\\"servers\\": {", "servers": {"keep": 1}}'),
    ],
)
def test_a_member_is_written_as_the_others_are(before: str, after: str) -> None:
    assert with_member(before, PATH, 1) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"servers": {"keep": 1}}', '{"servers": {}}'),
        ('{"servers": {"keep": 1, "b": [2,3]}}', '{"servers": {"b": [2,3]}}'),
        ('{"servers": {"a": 0 , "keep": 1 }}', '{"servers": {"a": 0 }}'),
        ('{\n  "servers": {\n    "keep": {\n    }\n  }\n}', '{\n  "servers": {}\n}'),
        ('{"servers": {"b": 1}}', '{"servers": {"b": 1}}'),
        ('{"keep": 1}', '{"keep": 1}'),
    ],
)
def test_a_member_is_taken_out_with_its_comma(before: str, after: str) -> None:
    assert without_member(before, PATH) == after


@given(_FILES, st.dictionaries(_NAMES.filter(lambda name: name != "keep"), _VALUES), _VALUES, _STYLES)
def test_what_was_put_in_can_be_taken_out_again(
    others: dict[str, Any], servers: dict[str, Any], value: Any, indent: int | str | None
) -> None:
    before = json.dumps({**others, "servers": servers}, indent=indent)
    after = with_member(before, PATH, value)
    assert json.loads(after) == {**others, "servers": {**servers, "keep": value}}
    assert json.loads(with_member(after, PATH, 7)) == {**others, "servers": {**servers, "keep": 7}}
    assert without_member(after, PATH) == before


@given(_FILES, _VALUES, _STYLES)
def test_the_object_that_is_missing_is_made(
    others: dict[str, Any], value: Any, indent: int | str | None
) -> None:
    after = with_member(json.dumps(others, indent=indent), PATH, value)
    assert json.loads(after) == {**others, "servers": {"keep": value}}
