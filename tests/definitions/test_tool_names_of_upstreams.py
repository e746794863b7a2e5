"""Names for all tools of an upstream: portable, apart, and the same every time."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.definitions.tool_names import choose_names

pytestmark = pytest.mark.spec("DEF-2")

PORTABLE = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ORIGINALS = st.lists(st.text("abAB_-./é", min_size=1, max_size=70), max_size=12)
TAKEN = st.lists(st.text("abAB_-", min_size=1, max_size=6), max_size=12)


def test_a_name_that_is_free_is_kept() -> None:
    assert choose_names(["readFile", "b"], upstream="files") == {"readFile": "readFile", "b": "b"}


@pytest.mark.parametrize("taken", ["read_file", "READ_FILE"])
def test_a_taken_name_gets_its_upstream_in_front(taken: str) -> None:
    assert choose_names(["read_file"], upstream="files", taken=[taken]) == {"read_file": "files_read_file"}


def test_names_that_differ_in_case_alone_are_told_apart() -> None:
    chosen = choose_names(["search", "SEARCH"], upstream="files")
    assert chosen == {"SEARCH": "SEARCH", "search": "files_search"}


def test_a_prefixed_name_that_is_taken_too_gets_a_digest() -> None:
    chosen = choose_names(["a", "files_a"], upstream="files", taken=["a"])
    assert chosen["files_a"] == "files_a"
    assert re.fullmatch("files_a_[0-9a-f]{12}", chosen["a"])


def test_a_long_name_stays_within_bounds() -> None:
    original = "a" * 64
    chosen = choose_names([original], upstream="u" * 64, taken=[original])
    assert PORTABLE.fullmatch(chosen[original])


@given(ORIGINALS, TAKEN, st.text("abé/", min_size=1, max_size=70))
def test_names_are_portable_and_lead_back_to_one_original(
    originals: list[str], taken: list[str], upstream: str
) -> None:
    chosen = choose_names(originals, upstream=upstream, taken=taken)
    assert set(chosen) == set(originals)
    folded = [name.lower() for name in chosen.values()]
    assert len(set(folded)) == len(folded)
    assert not set(folded) & {name.lower() for name in taken}
    assert all(map(PORTABLE.fullmatch, chosen.values()))


@given(ORIGINALS, st.randoms())
def test_the_order_in_which_tools_come_changes_no_name(originals: list[str], random: object) -> None:
    shuffled = list(originals)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert choose_names(shuffled, upstream="u") == choose_names(originals, upstream="u")
