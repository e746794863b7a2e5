"""Which lines change: a difference that leads from one text to the other, whatever the texts are made of."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.approval.file_diff import unified
from toolkeep.limits import DIFFERENCE_STEPS

pytestmark = pytest.mark.spec("POL-4")

TEXTS = st.lists(st.sampled_from("abc"), max_size=40)


def applied(old: Sequence[str], changes: list[str]) -> list[str]:
    """The old text with the changes made, each of which must fit where it says."""
    new: list[str] = []
    at = 0
    for change in changes:
        mark, line = change[0], change[1:]
        if place := re.match(r"@@ -(\d+)(?:,(\d+))? ", change):
            start = int(place[1]) - (place[2] != "0")
            new.extend(old[at:start])
            at = start
            continue
        if mark in " -":
            assert old[at] == line
            at += 1
        if mark in " +":
            new.append(line)
    return [*new, *old[at:]]


@given(TEXTS, TEXTS)
def test_a_difference_leads_from_one_text_to_the_other(old: list[str], new: list[str]) -> None:
    changes = list(unified(old, new))
    assert applied(old, changes) == new
    assert (changes == []) == (old == new)


def test_changes_that_lie_apart_are_shown_apart_each_with_three_lines_around() -> None:
    old = [f"line {number}" for number in range(30)]
    new = [*old[:5], "new", *old[6:20], *old[21:]]
    assert list(unified(old, new)) == [
        "@@ -3,7 +3,7 @@",
        *(f" line {number}" for number in (2, 3, 4)),
        "-line 5",
        "+new",
        *(f" line {number}" for number in (6, 7, 8)),
        "@@ -18,7 +18,6 @@",
        *(f" line {number}" for number in (17, 18, 19)),
        "-line 20",
        *(f" line {number}" for number in (21, 22, 23)),
    ]


@pytest.mark.parametrize("length", [1, 2, 6, 7, 20])
def test_as_few_lines_as_can_be_change(length: int) -> None:
    stays = [f"stays {number}" for number in range(length)]
    changes = list(unified(["a", *stays, "b"], ["c", *stays, "d"]))
    assert [one for one in changes if one[0] in "-+"] == ["-a", "+c", "-b", "+d"]


class Counted(str):
    """A line that counts how often it was compared."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        Counted.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def runs(separator: str) -> list[str]:
    """Lines that are the same wherever one looks, but for one now and then."""
    return [line for number in range(300) for line in (*["a"] * 200, f"{separator} {number}")]


HOSTILE = {
    "few words": ([str(n % 120) for n in range(50_000)], [str(n * 7 % 120) for n in range(50_000)]),
    "runs": (runs("old"), runs("new")),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_texts_that_are_made_to_take_long_are_compared_within_a_bound(case: str) -> None:
    old, new = ([Counted(line) for line in text] for text in HOSTILE[case])
    Counted.times = 0
    changes = list(unified(old, new))
    assert Counted.times < DIFFERENCE_STEPS + 3 * len(old)
    assert applied(old, changes) == new
