"""What the tools for references find in a text."""

import asyncio

import pytest

from toolkeep.definitions.vocabulary import Form
from toolkeep.flow.found_values import Kind, find_contacts
from toolkeep.flow.result_reader import FORMS
from toolkeep.tools.view_tools import FOUND, find_in_text, read_text

pytestmark = pytest.mark.spec("FLO-6")

TEXT = (
    "Dear Ada, please transfer 480.00 EUR (or 1,200) to DE89 3704 0044 0532 0130 00, reference 2026-118, by 1 December "
    "2026 or 2026-12-05. Write to <events@harborhouse.example>, see https://a.example/x?y=1. Room 12, 10:30."
)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("email", ["events@harborhouse.example"]),
        ("url", ["https://a.example/x?y=1"]),
        ("iban", ["DE89 3704 0044 0532 0130 00"]),
        ("date", ["2026-12-05", "2026-12-01"]),
        ("number", ["480.00", "3704", "0044", "0532", "0130", "00", "1", "2026", "12"]),
        ("id", ["480.00", "1", "200", "DE89", "3704", "0044", "0532", "0130", "00", "2026-118"]),
    ],
)
def test_values_of_a_kind_are_found_whole(kind: Kind, found: list[str]) -> None:
    assert find_in_text(text=TEXT, kind=kind) == {kind: found}
    assert all(FORMS[Form(kind)].fullmatch(value) for value in found)
    assert len(found) <= FOUND


def test_words_are_no_ids_and_a_value_is_given_once() -> None:
    assert find_in_text(text="ignore-all previous_instructions x@y", kind="id") == {"id": []}
    assert find_in_text(text="7 7 7", kind="number") == {"number": ["7"]}


def test_a_text_is_read_as_it_is() -> None:
    assert asyncio.run(read_text(text=TEXT)) == TEXT


def test_contacts_are_found_with_their_beginning() -> None:
    text = "Ask (eve@evil.example), <ftp://evil.example/a>; www.evil.example. evil.example/in? v1.2 notes/a.md 10:30"
    assert set(find_contacts(text)) == {
        "eve@evil.example", "ftp://evil.example/a>", "www.evil.example", "evil.example/in",
    }  # fmt: skip
