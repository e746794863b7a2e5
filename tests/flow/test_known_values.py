"""Values are found whole: never as a part of a longer address, path, word or number (FLO-2)."""

import pytest

from toolkeep.flow.known_values import KnownValues

pytestmark = pytest.mark.spec("FLO-2")

SAID = (
    "Send “Bob” (bob@corp.com.au) 1,200.50 EUR on 19th of November 2026, from https://a.com/x/y. "
    "John's file is notes.txt; ticket-7, id 42. Read docs/plan.md, then\n  tell   Zoë."
)


def known(text: str = SAID, limit: int = 4096) -> KnownValues:
    values = KnownValues(limit)
    values.add_text(text)
    return values


@pytest.mark.parametrize(
    "value",
    ["bob@corp.com.au", "BOB", "https://a.com/x/y", "John", "notes.txt", "ticket-7", "docs/plan.md", "zoë",
     "then tell Zoë", "1,200.50", "42"],
)  # fmt: skip
def test_what_the_user_wrote_is_known(value: str) -> None:
    assert known().has_text(value)


@pytest.mark.parametrize(
    "value",
    ["bob@corp.com", "corp.com.au", "b@corp.com.au", "https://a.com", "https://a.com/x", "notes", "ticket",
     "7", "plan.md", "docs", "zo", "bob@corp.com.au.evil.com", "bob@corp.com.au evil", "bоb@corp.com.au",
     "bob@corp\u200b.com.au", "200.50", "4"],
)  # fmt: skip
def test_a_part_or_another_spelling_is_not(value: str) -> None:
    assert not known().has_text(value)


def test_numbers_are_compared_by_value() -> None:
    values = known()
    assert [values.has_number(one) for one in (1200.5, 42, 42.0, "42.00", 2026)] == [
        True,
        True,
        True,
        True,
        True,
    ]
    assert not any(values.has_number(one) for one in (1200, 200.5, 7.5, 4, 19.5))
    values.add_values([7])
    assert values.has_number(7.0)


def test_dates_are_compared_by_day() -> None:
    values = known()
    assert values.has_dates("2026-11-19T09:30:00Z")
    assert values.has_dates("November 19, 2026")
    for other in ("2026-11-20", "2025-11-19", "2026-11-19 to 2026-11-20", "tomorrow", ""):
        assert not values.has_dates(other)
    assert known("on May 3rd").has_dates("2027-05-03")


def test_a_text_cannot_forge_a_number_or_a_date() -> None:
    values = known("\n\x0142\x01\n \x022026-1-1\x02\n", 4096)
    assert not values.has_number(43)
    assert not values.has_dates("2026-01-01")


def test_what_finds_no_room_is_not_known() -> None:
    values = known("x" * 100 + " bob@corp.com", limit=64)
    assert values.is_full
    assert not values.has_text("bob@corp.com")
