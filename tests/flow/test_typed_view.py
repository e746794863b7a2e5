"""A typed view shows exactly what opens no session, whatever result and labels look like."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.flow.test_session_state import FLOWS, KEYS, ROWS, STRINGS, VALUES, WORDS, compiled, plan
from toolkeep.flow import typed_view
from toolkeep.flow.result_reader import READ_FIRST, ResultReader
from toolkeep.flow.typed_view import REFERENCE, View, make_view
from toolkeep.json_values.canonical import canonical_bytes

pytestmark = pytest.mark.spec("FLO-6")

TOKEN = "abcdefghijklmnop"


def view_of(flow: dict[str, Any], value: Any, **more: Any) -> View:
    return make_view(plan(flow), value, canonical_bytes(value), TOKEN, **more)


def meant(said: str | bytes) -> Any:
    """What a reference stands for."""
    return said if isinstance(said, str) else json.loads(said)


def restored(view: Any, texts: list[str | bytes]) -> Any:
    """A view with what its references stand for."""
    if isinstance(view, dict):
        if REFERENCE in view:
            return meant(texts[int(view[REFERENCE].rpartition(".")[2])])
        return {key: restored(inside, texts) for key, inside in view.items()}
    return [restored(inside, texts) for inside in view] if isinstance(view, list) else view


def without_references(view: Any) -> Any:
    if isinstance(view, dict):
        return None if REFERENCE in view else {key: without_references(one) for key, one in view.items()}
    return [without_references(one) for one in view] if isinstance(view, list) else view


@given(FLOWS, VALUES | ROWS)
def test_a_view_shows_no_text_and_references_stand_for_all_that_is_missing(flow: Any, value: Any) -> None:
    view = view_of(flow, value)
    found = ResultReader(flow, WORDS).read(without_references(view.value))
    assert not found.opens
    assert not (found.system or found.outside) or found.is_secret <= view.is_secret
    assert restored(view.value, view.texts) == value
    assert json.loads(json.dumps(view.value)) == view.value
    whole = ResultReader(flow, WORDS).read(value)
    # Nothing is hidden that could be shown as it is.
    assert bool(view.texts) <= (whole.opens or whole.is_secret)


@given(FLOWS, VALUES | ROWS)
def test_a_compiled_reader_gives_the_same_view(flow: Any, value: Any) -> None:
    early, late = ResultReader(flow, WORDS), compiled(flow)
    views = [
        make_view(plan(flow), value, canonical_bytes(value), TOKEN, reader=reader) for reader in (early, late)
    ]
    assert views[0].value == views[1].value
    assert [view.is_secret for view in views] == [views[0].is_secret] * 2
    assert READ_FIRST > 1


def test_all_values_of_a_place_at_once_are_as_one_by_one() -> None:
    flow = {"/*/id": "system", "/*/who": {"outside": "email"}, "/*/n": {"system": "text"}, "/*/*": "text"}
    for key in KEYS:
        values: list[Any] = [*STRINGS, 1, None, [], {}, [{"id": "m1"}]]
        rows = [{key: one} for one in values]
        together = view_of(flow, rows)
        apart = [view_of(flow, [row]) for row in rows]
        assert without_references(together.value) == [without_references(one.value)[0] for one in apart]
        assert restored(together.value, together.texts) == rows


def test_a_result_with_too_many_texts_is_one_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_view, "REFERENCES", 3)
    labels = {"/*/id": "system", "/*/who": "text"}
    rows = [{"id": f"m{n}", "who": "Some text"} for n in range(4)]
    assert len(view_of(labels, rows[:3]).texts) == 3
    view = view_of(labels, rows)
    assert (restored(view.value, view.texts), view.value["chars"]) == (
        rows,
        len(json.dumps(rows, separators=(",", ":"))),
    )


def test_text_of_a_service_that_was_given_references_is_a_reference() -> None:
    flow = {"": {"system": "text"}, "/id": "system"}
    assert view_of(flow, {"id": "m1", "who": "Stored"}).value == {"id": "m1", "who": "Stored"}
    view = view_of(flow, {"id": "m1", "n": "Stored"}, repeats_texts=True)
    assert (view.value["id"], view.texts) == ("m1", ["Stored"])


def test_secret_values_with_a_form_are_shown_and_secret_texts_are_not() -> None:
    secret = {"system": "text", "readers": ["user"]}
    flow = {"/id": {"system": "id", "readers": ["user"]}}
    assert view_of(flow, {"id": "m1"}).is_secret
    hidden = view_of({"": secret}, {"n": "otter", "up": [12, None]})
    assert (hidden.is_secret, hidden.texts, hidden.secrets) == (False, ["otter", b"12"], {0, 1})
    assert hidden.value["up"][1] is None


@given(st.binary(max_size=20))
def test_bytes_are_shown_and_open_the_session(value: bytes) -> None:
    view = make_view(plan({"": {"system": "text"}}), value, value, TOKEN)
    assert (view.value, view.opens, view.texts) == (value, True, [])
