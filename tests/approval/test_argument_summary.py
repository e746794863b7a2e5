"""Arguments as a person is shown them: none hides another."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.definitions.examples import JSON, TEXT
from toolkeep.approval.argument_summary import outline, summary

pytestmark = pytest.mark.spec("POL-4")

ROOM = 2_000


def test_what_fits_is_shown_whole_the_shortest_first() -> None:
    shown = outline({"body": "Hello Bob", "to": ["bob"], "n": 1, "empty": {}, "none": []}, ROOM)
    assert not shown.is_cut
    assert (
        shown.text
        == """{
  "n": 1,
  "empty": {},
  "none": [],
  "to": [
    "bob"
  ],
  "body": "Hello Bob"
}"""
    )


@given(st.dictionaries(TEXT, JSON, max_size=6))
def test_what_fits_is_the_same_json(arguments: dict[str, Any]) -> None:
    assert json.loads(outline(arguments, 1 << 20).text) == arguments


HIDING: dict[str, Any] = {
    "a text": "x" * 200_000,
    "a list": ["x" * 50] * 10_000,
    "a nested object": {"inside": {"body": "x" * 200_000}},
    "many members": {str(number): number for number in range(20_000)},
    "a number": 10**4_000,
}


@pytest.mark.parametrize("long", HIDING.values(), ids=HIDING)
def test_nothing_long_hides_a_name_or_the_beginning_of_a_value(long: Any) -> None:
    shown = outline({"body": long, "to": "eve@evil.example"}, ROOM)
    assert shown.is_cut
    assert len(shown.text) <= ROOM
    assert shown.text.split("\n")[1] == '  "to": "eve@evil.example",'
    assert " more " in shown.text


def test_a_nested_recipient_is_not_hidden_either() -> None:
    shown = outline({"mail": {"body": "x" * 200_000, "to": "eve@evil.example"}}, ROOM)
    assert '"to": "eve@evil.example",' in shown.text


def test_every_name_is_shown_however_many_there_are() -> None:
    names = [f"argument_{number}" for number in range(3_000)]
    shown = outline(dict.fromkeys(names, "x" * 300), ROOM)
    assert [name for name in names if f'"{name}"' not in shown.text] == []


def test_no_value_can_say_what_is_missing() -> None:
    """What is left out is said outside the quotes."""
    lie = '", … 0 more characters'
    assert json.dumps(lie, ensure_ascii=False) in outline({"body": lie}, ROOM).text


def test_a_summary_begins_with_the_shortest() -> None:
    assert summary({"body": "x" * 200, "to": "bob"}, 120) == f'{{"to": "bob", "body": "{"x" * 39}…}}'
    assert len(summary({str(n): "x" * 99 for n in range(9_999)}, 120)) < 250


def test_short_arguments_stand_by_their_rank_and_no_rank_lifts_a_long_one() -> None:
    arguments = {"mode": "w", "quick": True, "path": "/srv/notes", "urls": ["x" * 500], "body": "hi"}
    ranks = {"path": 0, "urls": 0, "body": 1, "quick": 2, "mode": 3}
    names = ["path", "body", "quick", "mode", "urls"]
    assert list(json.loads(outline(arguments, ROOM, ranks).text)) == names
    assert list(json.loads(summary(arguments, ROOM, value_chars=600, ranks=ranks))) == names
