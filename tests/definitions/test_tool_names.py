"""Names of tools: what an author may choose, and how a name from elsewhere is made portable."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.definitions.tool_names import portable_name, wrong_with_author_name

pytestmark = pytest.mark.spec("DEF-2")

PORTABLE = re.compile(r"^[a-zA-Z0-9_-]{1,64}\Z")
ANY_TEXT = st.text(st.characters(), min_size=1, max_size=200)


@pytest.mark.parametrize("name", ["a", "read_file", "x9", "a__b", "a_", "runner", "execute_it", "a" * 64])
def test_an_author_may_use_snake_case_of_up_to_64_characters(name: str) -> None:
    assert wrong_with_author_name(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "Read",
        "readFile",
        "read-file",
        "read.file",
        "_read",
        "9read",
        "read file",
        "réad",
        "read\n",
        "READ",
        "a/b",
    ],
)
def test_an_author_may_not_use_other_characters(name: str) -> None:
    assert (
        wrong_with_author_name(name) == "must start with a lower-case letter and contain only a-z, 0-9 and _"
    )


@pytest.mark.parametrize("name", ["execute", "run", "call", "invoke"])
def test_four_words_are_reserved(name: str) -> None:
    assert wrong_with_author_name(name) == "is reserved"


def test_an_author_name_ends_at_64_characters() -> None:
    assert wrong_with_author_name("a" * 65) == "has 65 characters, at most 64 are allowed"


def test_an_author_name_is_not_empty() -> None:
    assert wrong_with_author_name("") == "is empty"


@given(ANY_TEXT)
def test_a_mapped_name_is_always_portable(original: str) -> None:
    assert PORTABLE.match(portable_name(original))


@given(ANY_TEXT)
def test_mapping_is_deterministic_and_done_once(original: str) -> None:
    name = portable_name(original)
    assert portable_name(original) == name
    assert portable_name(name) == name


@given(st.lists(st.text("ab._/-A é\ud800", min_size=1, max_size=80), unique=True, min_size=2, max_size=8))
def test_different_originals_keep_different_names(originals: list[str]) -> None:
    assert len({portable_name(original) for original in originals}) == len(originals)


@given(st.from_regex(PORTABLE))
def test_a_portable_name_is_kept_as_it_is(original: str) -> None:
    assert portable_name(original) == original


@pytest.mark.parametrize(
    ("original", "start"),
    [
        ("files/read.text", "files_read_text_"),
        ("a" * 65, "a" * 51 + "_"),
        ("日本", "tool_"),
        ("  spaced  ", "spaced_"),
    ],
)
def test_a_mapped_name_stays_readable_and_ends_in_a_digest(original: str, start: str) -> None:
    name = portable_name(original)
    assert re.fullmatch(re.escape(start) + "[0-9a-f]{12}", name)


def test_a_mapped_name_is_the_same_on_every_machine() -> None:
    assert portable_name("files/read.text") == "files_read_text_e795deac8054"
