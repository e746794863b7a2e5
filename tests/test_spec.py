"""The list of the specification's ids is exact in both directions."""

from pathlib import Path

from tests import spec


def test_every_id_is_shown_by_a_test_or_has_a_reason_never_both() -> None:
    shown = set(spec.marks())
    assert shown | set(spec.NOT_YET) == set(spec.IDS)
    assert shown & set(spec.NOT_YET) == set()


def test_the_page_lists_every_id_once() -> None:
    assert spec.PAGE.read_text() == spec.page()


def test_the_ids_are_those_of_the_specification(shared_data: Path) -> None:
    text = (shared_data.parent / "SPEC.md").read_text()
    assert spec.specified(text) == spec.IDS
