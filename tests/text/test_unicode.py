"""Characters that a reader does not see, by tables of our own."""

import sys
import unicodedata

import pytest

from toolkeep.text.unicode import Invisible, invisible_kind, is_blank


@pytest.mark.parametrize(
    ("char", "kind"),
    [
        ("\x00", Invisible.CONTROL),
        ("\x1b", Invisible.CONTROL),
        ("\x9b", Invisible.CONTROL),
        ("\u00ad", Invisible.ZERO_WIDTH),
        ("\u200b", Invisible.ZERO_WIDTH),
        ("\ufeff", Invisible.ZERO_WIDTH),
        ("\u2060", Invisible.ZERO_WIDTH),
        ("\u202e", Invisible.BIDI),
        ("\u2066", Invisible.BIDI),
        ("\U000e0001", Invisible.TAG),
        ("\U000e0041", Invisible.TAG),
        ("\ufe0f", Invisible.SELECTOR),
        ("\U000e0100", Invisible.SELECTOR),
        ("\u3164", Invisible.BLANK),
        ("\u2800", Invisible.BLANK),
        ("\ue000", Invisible.PRIVATE),
        ("\U0010ffff", Invisible.PRIVATE),
    ],
)
def test_each_kind_is_known(char: str, kind: Invisible) -> None:
    assert invisible_kind(char) is kind


@pytest.mark.parametrize("char", [" ", "\t", "\n", "\r", "a", "é", "日", "\u00a0", "😀", "\u0301", "ي"])
def test_what_is_seen_is_not_unseen(char: str) -> None:
    assert invisible_kind(char) is None


def test_every_format_character_of_unicode_is_known() -> None:
    """Those that stand for something seen aside: signs that go around numbers, and of ancient scripts."""
    seen = {
        *range(0x600, 0x606),
        0x6DD,
        0x70F,
        0x890,
        0x891,
        0x8E2,
        0x110BD,
        0x110CD,
        *range(0x13430, 0x13440),
    }
    missed = [
        hex(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in ("Cf", "Co")
        and invisible_kind(chr(code)) is None
        and code not in seen
    ]
    assert missed == []


def test_blank_letters_and_selectors_are_blank() -> None:
    assert [is_blank(char) for char in "\u3164\ufe0fa \u200b"] == [True, True, False, False, False]
