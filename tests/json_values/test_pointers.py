"""JSON Pointers: what is written is read back, and what leads nowhere says so."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.json_values.pointers import child, look_up, pointer, referred, steps_of

DATA: dict[str, Any] = {"a": [{"b/c": 1, "~1": 2}, [3]], "": {"0": 4}}


@given(st.lists(st.text()))
def test_the_steps_of_a_pointer_are_those_that_it_was_made_of(steps: list[str]) -> None:
    assert steps_of(pointer(steps)) == steps


@pytest.mark.parametrize(
    ("place", "value"),
    [("", DATA), ("/a/0/b~1c", 1), ("/a/0/~01", 2), ("/a/1/0", 3), ("//0", 4)],
)
def test_a_pointer_leads_to_a_member_or_an_item(place: str, value: object) -> None:
    assert look_up(DATA, place) == value
    assert referred(DATA, f"#{place}") == value


@pytest.mark.parametrize(
    "place", ["/b", "/a/2", "/a/-1", "/a/00", "/a/+1", "/a/١", f"/a/{'1' * 5000}", "/a/b", "/a/1/0/x"]
)
def test_a_pointer_that_leads_nowhere_is_a_key_error(place: str) -> None:
    with pytest.raises(KeyError):
        look_up(DATA, place)


@pytest.mark.parametrize("reference", ["", "a", "#a", "other.json#/a", "/a", None, {}, 1])
def test_only_a_fragment_with_a_pointer_is_a_local_reference(reference: object) -> None:
    with pytest.raises(KeyError):
        referred(DATA, reference)


def test_a_step_into_a_scalar_leads_nowhere() -> None:
    with pytest.raises(KeyError):
        child("text", "0")
