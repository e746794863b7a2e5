"""One line of untrusted text in the columns of a terminal."""

import pytest

from toolkeep.text.columns import fit


@pytest.mark.parametrize(
    ("given", "width", "wanted"),
    [
        ("abc", 3, "abc"),
        ("abcdef", 5, "abc\u2026"),
        ("\u4f60\u4f60\u4f60", 5, "\u4f60\u2026"),
        ("a\nb", 9, "a\\nb"),
    ],
)
def test_one_line_fits(given: str, width: int, wanted: str) -> None:
    assert fit(given, width) == wanted
